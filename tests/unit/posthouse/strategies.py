"""What property tests of the protocol are fed with."""

import json

from hypothesis import strategies as st

from posthouse.address import SCHEMES, Address

# All that an address may hold: anything but control characters and lone surrogates.
printable = st.characters(exclude_categories=("Cc", "Cs"))
texts = st.text(printable, max_size=40) | st.text("aZ9_-.*> /=+群😀", max_size=60)
domains = texts.map(lambda text: text.replace("/", "")).filter(bool)
addresses = st.builds(Address, st.sampled_from(SCHEMES), domains, texts)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.text("ab_./", max_size=4), children, max_size=3)
    ),
    max_leaves=6,
)


def as_json(value: object) -> bytes:
    """The bytes of a JSON value; NaN and infinities stay the non-JSON that Python makes them."""
    return json.dumps(value, ensure_ascii=False).encode()
