"""Objects that are spoiled in one place."""

from typing import Any

from hypothesis import strategies as st

from tests.builders import Json

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def spoil(obj: Json, draw: st.DrawFn) -> Json:
    """The object with another value somewhere."""
    value: Any = obj
    while True:
        name = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        if not value[name] or not isinstance(value[name], dict | list) or draw(st.booleans()):
            value[name] = draw(anything)
            return obj
        value = value[name]
