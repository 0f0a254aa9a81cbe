"""Quantities match apimachinery's tables and the laws of exact numbers."""

import copy
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.units.quantity import Quantity, QuantityError, parse_quantity

MAX = 2**63 - 1

# Inputs and outcomes as in quantity_test.go of apimachinery v0.36: (amount, power of ten, format).
PARSED = {
    **{f"0{suffix}": (0, 0, "DecimalSI") for suffix in ("", "n", "u", "m", "k", "M", "G", "T")},
    **{f"0{suffix}": (0, 0, "BinarySI") for suffix in ("Ki", "Mi", "Gi", "Ti")},
    "1": (1, 0, "DecimalSI"),
    "1Ki": (2**10, 0, "BinarySI"),
    "8Ki": (8 * 2**10, 0, "BinarySI"),
    "7Mi": (7 * 2**20, 0, "BinarySI"),
    "6Gi": (6 * 2**30, 0, "BinarySI"),
    "5Ti": (5 * 2**40, 0, "BinarySI"),
    "4Pi": (4 * 2**50, 0, "BinarySI"),
    "3Ei": (3 * 2**60, 0, "BinarySI"),
    "10Ti": (10 * 2**40, 0, "BinarySI"),
    "100Ti": (100 * 2**40, 0, "BinarySI"),
    "5n": (5, -9, "DecimalSI"),
    "4u": (4, -6, "DecimalSI"),
    "3m": (3, -3, "DecimalSI"),
    "9": (9, 0, "DecimalSI"),
    "8k": (8, 3, "DecimalSI"),
    "50k": (5, 4, "DecimalSI"),
    "7M": (7, 6, "DecimalSI"),
    "6G": (6, 9, "DecimalSI"),
    "5T": (5, 12, "DecimalSI"),
    "40T": (4, 13, "DecimalSI"),
    "300T": (3, 14, "DecimalSI"),
    "2P": (2, 15, "DecimalSI"),
    "1E": (1, 18, "DecimalSI"),
    "1E-3": (1, -3, "DecimalExponent"),
    "1e3": (1, 3, "DecimalExponent"),
    "1E6": (1, 6, "DecimalExponent"),
    "1e9": (1, 9, "DecimalExponent"),
    "1E12": (1, 12, "DecimalExponent"),
    "1e15": (1, 15, "DecimalExponent"),
    "1E18": (1, 18, "DecimalExponent"),
    "1e14": (1, 14, "DecimalExponent"),
    "1e13": (1, 13, "DecimalExponent"),
    "100.035k": (100035, 0, "DecimalSI"),
    "0.001": (1, -3, "DecimalSI"),
    "0.0005k": (5, -1, "DecimalSI"),
    "0.005": (5, -3, "DecimalSI"),
    "0.05": (5, -2, "DecimalSI"),
    "0.5": (5, -1, "DecimalSI"),
    "0.00050k": (5, -1, "DecimalSI"),
    "0.00500": (5, -3, "DecimalSI"),
    "0.05000": (5, -2, "DecimalSI"),
    "0.50000": (5, -1, "DecimalSI"),
    "0.5e0": (5, -1, "DecimalExponent"),
    "0.5e-1": (5, -2, "DecimalExponent"),
    "0.5e-2": (5, -3, "DecimalExponent"),
    "10.035M": (10035, 3, "DecimalSI"),
    "1.2e3": (12, 2, "DecimalExponent"),
    "1.3E+6": (13, 5, "DecimalExponent"),
    "1.40e9": (14, 8, "DecimalExponent"),
    "1.53E12": (153, 10, "DecimalExponent"),
    "1.6e15": (16, 14, "DecimalExponent"),
    "1.7E18": (17, 17, "DecimalExponent"),
    "9.01": (901, -2, "DecimalSI"),
    "8.1k": (81, 2, "DecimalSI"),
    "7.123456M": (7123456, 0, "DecimalSI"),
    "6.987654321G": (6987654321, 0, "DecimalSI"),
    "5.444T": (5444, 9, "DecimalSI"),
    "40.1T": (401, 11, "DecimalSI"),
    "300.2T": (3002, 11, "DecimalSI"),
    "2.5P": (25, 14, "DecimalSI"),
    "1.01E": (101, 16, "DecimalSI"),
    "3.001n": (4, -9, "DecimalSI"),
    "1.1E-9": (2, -9, "DecimalExponent"),
    "0.0000000001": (1, -9, "DecimalSI"),
    "0.0000000005": (1, -9, "DecimalSI"),
    "0.00000000050": (1, -9, "DecimalSI"),
    "0.5e-9": (1, -9, "DecimalExponent"),
    "0.9n": (1, -9, "DecimalSI"),
    "0.00000012345": (124, -9, "DecimalSI"),
    "0.00000012354": (124, -9, "DecimalSI"),
    "9Ei": (MAX, 0, "BinarySI"),
    "9223372036854775807Ki": (MAX, 0, "BinarySI"),
    "12E": (12, 18, "DecimalSI"),
    "100.035Ki": (10243584, -2, "BinarySI"),
    "0.5Mi": (2**19, 0, "BinarySI"),
    "0.05Gi": (536870912, -1, "BinarySI"),
    "0.025Ti": (274877906944, -1, "BinarySI"),
    "0.000000000001Ki": (2, -9, "DecimalSI"),
    ".001": (1, -3, "DecimalSI"),
    ".0001k": (100, -3, "DecimalSI"),
    "1.": (1, 0, "DecimalSI"),
    "1.G": (1, 9, "DecimalSI"),
}

REFUSED = {
    "two points": "1.1.M",
    "a sign inside": "1+1.0M",
    "milli with an i": "0.1mi",
    "an unknown letter": "0.1am",
    "no number at all": "aoeu",
    "a binary suffix without a letter, fraction": ".5i",
    "a binary suffix without a letter": "1i",
    "the same, negative": "-3.01i",
    "an exponent without digits": "-3.01e-",
    "leading space": " 1",
    "trailing space": "1 ",
    "a trailing newline": "1\n",
    "nothing": "",
    "a suffix alone": "Gi",
    "a sign alone": "-",
    "a point alone": ".",
    "digits of another script": "١",
    "an exponent that would fill the memory": "1e999999999",
    "a text that would fill the memory": "9" * 1000,
    "a truth value": True,
    "not a number": float("nan"),
    "infinity": float("inf"),
    "a list": [1],
    "an object": {},
    "null": None,
    "an integer of a thousand digits": 10**1000,
}

# (value as text that parses to it) -> canonical
CANONICAL = {
    "1024Mi": "1Gi",
    "307200Ki": "300Mi",
    "6Ki": "6Ki",
    "1025024Mi": "1001Gi",
    "1024Gi": "1Ti",
    "5000m": "5",
    "0.5": "500m",
    "1000M": "1G",
    "0.001T": "1G",
    "1000u": "1m",
    "80m": "80m",
    "1.08": "1080m",
    "1080000000n": "1080m",
    "300M": "300M",
    "1T": "1T",
    "1234567M": "1234567M",
    "3k": "3k",
    "0Mi": "0",
    ".001e12": "1e9",
    "0.001e0": "1e-3",
    "1000e-12": "1e-9",
    "80e-3": "80e-3",
    "300e6": "300e6",
    "00": "0",
    "0e5": "0",
    "1080n": "1080n",
    "80u": "80u",
    ".001Ki": "1024m",
    ".000001Ki": "1024u",
    ".000000001Ki": "1024n",
    ".000000000001Ki": "2n",
    "1.5Gi": "1536Mi",
    "1e1": "10",
    "10e2": "1e3",
    "12.0Ki": "12Ki",
    "0.5Ki": "512",
    "1024Ei": "9223372036854775807",
}

KEPT_AS_WRITTEN = ["+2", "1.500", "1E3", "1.", "1.G", "+3Ki", "03Ki", "1E+3", "007"]


@pytest.mark.parametrize("text", PARSED)
@pytest.mark.parametrize("sign", ["", "-", "+"])
def test_quantities_are_parsed_as_in_kubernetes(sign: str, text: str) -> None:
    amount, power, want_format = PARSED[text]
    want = Fraction(amount) * Fraction(10) ** power * (-1 if sign == "-" else 1)
    got = Quantity.parse(sign + text)
    assert Fraction(got.nanos, 10**9) == want
    assert got.format == want_format


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_input_is_rejected(case: str) -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(REFUSED[case])  # type: ignore[arg-type]


def test_error_names_the_text_and_valid_examples() -> None:
    with pytest.raises(QuantityError, match=r"'5 apples'.*500m"):
        parse_quantity("5 apples")


@pytest.mark.parametrize("text", CANONICAL)
def test_amounts_are_written_in_canonical_form(text: str) -> None:
    assert str(Quantity.parse(text)) == CANONICAL[text]
    if CANONICAL[text] != "0":
        assert str(Quantity.parse("-" + text)) == "-" + CANONICAL[text]


@pytest.mark.parametrize("text", KEPT_AS_WRITTEN)
def test_text_that_kubernetes_keeps_is_kept(text: str) -> None:
    assert str(Quantity.parse(text)) == text


def test_arithmetic_drops_the_original_text() -> None:
    assert str(Quantity.parse("1.500") + Quantity.parse("0")) == "1500m"
    assert str(-Quantity.parse("+2")) == "-2"


def test_formatted_amounts_follow_their_format() -> None:
    cases = {
        "binary below 1Ki is plain": (Quantity.from_int(1023, binary=True), "1023"),
        "binary that is no multiple is plain": (Quantity.from_int(1025, binary=True), "1025"),
        "binary multiples get their suffix": (Quantity.from_int(2**20, binary=True), "1Mi"),
        "binary fractions are decimal": (Quantity(1234567 * 10**6, "BinarySI"), "1234567m"),
        "decimal thousands get a suffix": (Quantity.from_int(1234000), "1234k"),
        "exponents are multiples of three": (Quantity.from_int(10**7) * 1, "10M"),
        "exponent format": (Quantity(10**6 * 10**9, "DecimalExponent"), "1e6"),
        "milli": (Quantity.from_milli(1500), "1500m"),
        "whole milli": (Quantity.from_milli(1234000), "1234"),
        "beyond exa the suffix stays": (Quantity.parse("1000E"), "1000E"),
    }
    for case, (quantity, want) in cases.items():
        assert str(quantity) == want, case


def test_values_round_away_from_zero() -> None:
    cases = {
        "1n": (1, 1),
        "1m": (1, 1),
        "999m": (1, 999),
        "1001m": (2, 1001),
        "1": (1, 1000),
        "0": (0, 0),
        "0.5m": (1, 1),
        "-1.5": (-2, -1500),
        "-1n": (-1, -1),
        "2Ki": (2048, 2048000),
    }
    for text, (want_value, want_milli) in cases.items():
        assert Quantity.parse(text).value() == want_value, text
        assert Quantity.parse(text).milli_value() == want_milli, text


def test_numbers_are_parsed_as_their_json_text() -> None:
    assert str(Quantity.parse(5)) == "5"
    assert str(Quantity.parse(0.25)) == "250m"
    assert Quantity.parse(1e21) == Quantity.parse("1e21")
    assert Quantity.parse(-3).value() == -3


def test_sum_keeps_the_left_format_unless_left_is_zero() -> None:
    cases = {
        ("10", "1Ki"): "1034",
        ("1Ki", "1024"): "2Ki",
        ("0", "1Ki"): "1Ki",
        ("0Ki", "2000"): "2k",
        ("1e3", "2k"): "3e3",
    }
    for (left, right), want in cases.items():
        assert str(Quantity.parse(left) + Quantity.parse(right)) == want
    assert str(Quantity.parse("0") - Quantity.parse("1Ki")) == "-1Ki"
    assert str(Quantity.parse("2Ki") - Quantity.parse("1k")) == "1048"


def test_arithmetic_with_other_types_is_rejected() -> None:
    one: Any = Quantity.from_int(1)
    assert one != 1
    operations: list[Callable[[], object]] = [
        lambda: one + 1,
        lambda: one - 1,
        lambda: one < 1,
        lambda: one * one,
    ]
    for operation in operations:
        with pytest.raises(TypeError):
            operation()


def test_quantities_are_values() -> None:
    one = Quantity.parse("1.5Gi")
    assert {one: "x"}[Quantity.parse("1536Mi")] == "x"
    assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one)
    assert repr(one) == "Quantity('1536Mi')"
    assert float(one) == 1.5 * 2**30
    assert not Quantity.parse("0Mi")
    assert Quantity.parse("0Mi").is_zero
    assert abs(Quantity.parse("-2")) == 2 * Quantity.from_int(1)
    assert not hasattr(one, "__dict__")


quantities = st.builds(
    Quantity,
    st.one_of(
        st.integers(-(10**30), 10**30),
        st.integers(-(2**20), 2**20).map(lambda n: n * 2**20 * 10**9),
        st.integers(-2000, 2000).map(lambda n: n * 10**6),
    ),
    st.sampled_from(["BinarySI", "DecimalSI", "DecimalExponent"]),
)
texts = st.from_regex(
    r"[+-]?[0-9]{1,12}(\.[0-9]{0,6})?(|n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,2})",
    fullmatch=True,
)


@given(quantities)
def test_printed_quantity_parses_to_the_same_amount(quantity: Quantity) -> None:
    # Amounts beyond 64 bits are capped by the parser, in binary format only, as in Kubernetes.
    if quantity.format != "BinarySI" or abs(quantity.nanos) <= MAX * 10**9:
        assert Quantity.parse(str(quantity)) == quantity


@given(texts)
def test_canonical_form_is_a_fixed_point(text: str) -> None:
    once = str(Quantity.parse(text))
    assert str(Quantity.parse(once)) == once
    assert Quantity.parse(once) == Quantity.parse(text)


@given(st.integers(0, 10**12), st.integers(-9, 18), st.integers(0, 10**12), st.integers(-9, 18))
def test_order_agrees_with_exact_rationals(a: int, i: int, b: int, j: int) -> None:
    left, right = Quantity.parse(f"{a}e{i}"), Quantity.parse(f"{b}e{j}")
    exact_left, exact_right = Fraction(a) * Fraction(10) ** i, Fraction(b) * Fraction(10) ** j
    assert (left < right) == (exact_left < exact_right)
    assert (left <= right) == (exact_left <= exact_right)
    assert (left == right) == (exact_left == exact_right)
    assert (left > right) == (exact_left > exact_right)
    assert (left >= right) == (exact_left >= exact_right)


@given(quantities, quantities)
def test_subtraction_reverses_addition(left: Quantity, right: Quantity) -> None:
    assert left + right - right == left
    assert left + right == right + left
    assert left - right == -(right - left)


@given(st.text(max_size=12))
def test_any_text_parses_or_is_rejected(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except QuantityError:
        return
    assert Quantity.parse(str(quantity)) == quantity
