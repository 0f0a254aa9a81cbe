"""Generate docs/reference/hooks.md from the hook specs: `python -m tools.hook_reference`."""

from __future__ import annotations

from pathlib import Path

from hekla.scheduler.framework.hooks import HOOKS, AnyHook

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "hooks.md"
HEAD = """\
# Hooks of scheduler plugins

<!-- Written by `python -m tools.hook_reference`. Do not edit. -->

A plugin implements a hook by defining a method of its name, with `self` and these parameters. See
[Write a plugin](../guides/write-a-plugin.md). A method with other parameters is refused when the
class is defined. The specifications are in `hekla.scheduler.framework.hooks`.

| hook | returns | switch in the tiers |
|---|---|---|
"""


def page() -> str:
    """Return the text of the page."""
    rows = [
        f"| [`{hook.name}`](#{hook.name}) | {_returns(hook)} | {_switch(hook)} |" for hook in _all()
    ]
    return HEAD + "\n".join(rows) + "\n" + "".join(_section(hook) for hook in _all())


def _all() -> list[AnyHook]:
    return list(HOOKS.values())


def _returns(hook: AnyHook) -> str:
    return "`" + hook.returns.replace("|", "\\|") + "`"


def _switch(hook: AnyHook) -> str:
    return f"`{hook.switch}`" if hook.switch else ""


def _section(hook: AnyHook) -> str:
    parameters = ", ".join(f"{each.name}: {each.annotation}" for each in hook.parameters)
    return f"\n## {hook.name}\n\n    {hook.name}({parameters}) -> {hook.returns}\n\n{hook.doc}\n"


if __name__ == "__main__":
    PAGE.write_text(page())
