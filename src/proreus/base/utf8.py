"""Text that UTF-8 can encode, as all that leaves the process has to be.

Python's strings may hold halves of surrogate pairs, which no encoding has: a plugin that reads
foreign bytes, or JSON with a broken escape, makes such a string without noticing.
"""


def valid_text(field: str, value: object) -> str:
    """Return the text that a plugin gave a field, without methods of the plugin's own.

    Raises ``TypeError`` for what is no text. See ``to_valid_utf8``.
    """
    if type(value) is str and value.isascii():
        return value
    if not isinstance(value, str):
        raise TypeError(f"{field} must be a text, not {value!r}")
    return to_valid_utf8(str.__str__(value))


def to_valid_utf8(text: str) -> str:
    """Return the text with U+FFFD in place of each lone surrogate (Go's ``strings.ToValidUTF8``).

    Nearly all texts are returned as they are.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
