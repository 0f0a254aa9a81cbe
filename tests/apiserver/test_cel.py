"""CEL: compilation, evaluation, and behaviour without the evaluator."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.apiserver import cel
from hekla.apiserver.schema import validation_rules
from hekla.apiserver.server import ApiServer
from hekla.kube.client import Client
from hekla.kube.errors import Invalid
from hekla.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, HYPER_NODES

TRUE = (
    "quantity('1Gi').isGreaterThan(quantity('1000M'))",
    "quantity('1').add(quantity('500m')).compareTo(quantity('1500m')) == 0",
    "quantity('2').sub(1).asInteger() == 1",
    "quantity('-1').sign() == -1 && !quantity('1m').isInteger()",
    "isQuantity('1Ki') && !isQuantity('one')",
    "[1, 2, 2].isSorted() && !['b', 'a'].isSorted()",
    "[1, 2].sum() == 3 && [3, 1].min() == 1 && [3, 1].max() == 3",
    "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && 'abc'.indexOf('c') == 2",
    "sets.contains([1, 2], [1]) && sets.intersects([1], [1, 2]) && sets.equivalent([1], [1, 1])",
    "'a1b22'.find('[0-9]+') == '1' && 'a1b22'.findAll('[0-9]+') == ['1', '22']",
    "'a1b22'.findAll('[0-9]+', 1) == ['1'] && 'x'.find('y') == ''",
    "url('https://u@h.org:80/p?a=b').getScheme() == 'https'",
    "url('https://[::1]:80/p').getHostname() == '::1' && url('https://h/p').getPort() == ''",
    "url('https://h/p?a=b').getQuery()['a'] == ['b'] && isURL('/x') && !isURL('x')",
    "ip('127.0.0.1').isLoopback() && ip('fe80::1').isLinkLocalUnicast()",
    "ip('10.0.0.1').isGlobalUnicast() && ip('224.0.0.5').isLinkLocalMulticast()",
    "ip('::1').family() == 6 && isIP('1.2.3.4') && !isIP('1.2.3')",
    "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP('11.0.0.1')",
    "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.0.0.0/8').prefixLength() == 8",
    "isCIDR('::/0') && !isCIDR('1.2.3.4')",
    "semver('1.10.0').isGreaterThan(semver('1.9.9'))",
    "semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))",
    "semver('1.2.3').minor() == 2 && isSemver('1.2.3+x') && !isSemver('v1')",
    "'%s is %d'.format(['a', 1]) == 'a is 1'",
    "optional.of(1).hasValue() && {'a': 1}.?b.orValue(2) == 2",
)


@pytest.mark.parametrize("text", TRUE)
def test_kubernetes_functions_evaluate(text: str) -> None:
    assert cel.compile(text, ()).holds({})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 +", "Syntax error"),
        ("nope", "undeclared reference to 'nope'"),
        ("'text'", "must evaluate to bool"),
        ("", "empty"),
        ("authorizer.group('').resource('pods').check('get').allowed()", "authorizer"),
        ("true" + " " * cel.MAX_EXPRESSION, "longer than"),
    ],
)
def test_invalid_expression_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(cel.Refused, match=why):
        cel.compile(text, ("self",))


@pytest.mark.parametrize("text", ["self.x == 1", "1 / 0 == 1", "quantity('one').isInteger()"])
def test_failed_evaluation_raises(text: str) -> None:
    with pytest.raises(cel.Failed):
        cel.compile(text, ("self",)).holds({"self": {}})


def test_field_names_that_are_not_cel_identifiers_are_escaped() -> None:
    found = [
        validation_rules.escape(name) for name in ("a-b", "a.b", "a/b", "a__b", "namespace", "x")
    ]
    want = ["a__dash__b", "a__dot__b", "a__slash__b", "a__underscores__b", "__namespace__", "x"]
    assert found == want


@pytest.fixture
def without_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cel, "_cel", None)


DEFINITION: dict[str, Any] = {
    "metadata": {"name": "things.hekla.test"},
    "spec": {
        "group": "hekla.test",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-validations": [{"rule": "has(self.metadata)"}],
                    }
                },
            }
        ],
    },
}


async def test_without_evaluator_rules_are_refused_with_the_install_command(
    without_evaluator: None, server: ApiServer, client: Client
) -> None:
    with pytest.raises(Invalid, match=r"pip install 'hekla\[cel\]'"):
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)


async def test_hypernodes_are_validated_without_the_evaluator(
    without_evaluator: None, server: ApiServer, client: Client
) -> None:
    member = {"type": "Node", "selector": {}}
    body = {"metadata": {"name": "a"}, "spec": {"tier": 1, "members": [member]}}
    with pytest.raises(Invalid, match="selector"):
        await client.create(HYPER_NODES, body)
    member["selector"] = {"exactMatch": {"name": "node-1"}}
    await client.create(HYPER_NODES, body)
