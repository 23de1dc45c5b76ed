"""IP addresses and networks as CEL sees them, and Kubernetes' functions on them.

An address travels as the bytes of its canonical text, a network as ``address/bits``: no other kind
of value looks like that (see ``cel_values``), equal bytes mean equal values, and CEL's own
``string()`` turns them into the text that Kubernetes gives.
"""

from __future__ import annotations

import re
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NO_OVERLOAD = "no such overload"
_PREFIX_LENGTH = re.compile("0|[1-9][0-9]{0,2}")
_NOWHERE_GLOBAL = (IPv4Address("0.0.0.0"), IPv4Address("255.255.255.255"))
_LINK_LOCAL_GROUPS_V4 = IPv4Network("224.0.0.0/24")


# ---- addresses ---------------------------------------------------------------------------------


def ip(text: str) -> bytes:
    """Parse; zones and IPv4 in IPv6 are refused. Raises ``ValueError``."""
    return str(_parsed_address(text)).encode()


def is_canonical(text: str) -> bool:
    """Tell whether the text is how the address is written; raises ``ValueError``."""
    return str(_parsed_address(text)) == text


def _parsed_address(text: str) -> Address:
    try:
        address = ip_address(text)
    except ValueError as error:
        raise ValueError(
            f'IP Address "{text}" parse error during conversion from string: {error}'
        ) from None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            raise ValueError(f'IP address "{text}" with zone value is not allowed')
        if address.ipv4_mapped is not None:
            raise ValueError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


def _address(value: bytes) -> Address:
    try:
        return ip_address(bytes(value).decode())
    except ValueError:
        raise ValueError(_NO_OVERLOAD) from None


def family(value: bytes) -> int:
    """Return 4 or 6."""
    return _address(value).version


def is_unspecified(value: bytes) -> bool:
    """Tell whether all bits are 0."""
    return _address(value).is_unspecified


def is_loopback(value: bytes) -> bool:
    """Tell whether it is of 127.0.0.0/8, or ::1."""
    return _address(value).is_loopback


def is_link_local_multicast(value: bytes) -> bool:
    """Tell whether it is of 224.0.0.0/24, or a group of IPv6's link-local scope."""
    address = _address(value)
    if isinstance(address, IPv4Address):
        return address in _LINK_LOCAL_GROUPS_V4
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2


def is_link_local_unicast(value: bytes) -> bool:
    """Tell whether it is of 169.254.0.0/16 or fe80::/10."""
    return _address(value).is_link_local


def is_global_unicast(value: bytes) -> bool:
    """Tell whether it is none of the special ones above; private addresses are global here."""
    address = _address(value)
    return not (
        address in _NOWHERE_GLOBAL
        or address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    )


# ---- networks ----------------------------------------------------------------------------------


def cidr(text: str) -> bytes:
    """Parse ``address/bits``; bits of the host may be set. Raises ``ValueError``."""
    address, bits = _parsed_prefix(text)
    return f"{address}/{bits}".encode()


def _parsed_prefix(text: str) -> tuple[Address, int]:
    head, slash, bits = text.rpartition("/")
    wrong = "network address parse error during conversion from string"
    if not slash or not _PREFIX_LENGTH.fullmatch(bits):
        raise ValueError(f'{wrong}: {wrong}: netip.ParsePrefix("{text}"): bad bits after slash')
    try:
        address = _parsed_address(head)
    except ValueError as error:
        raise ValueError(f"{wrong}: {error}") from None
    if int(bits) > address.max_prefixlen:
        raise ValueError(
            f'{wrong}: {wrong}: netip.ParsePrefix("{text}"): prefix length out of range'
        )
    return address, int(bits)


def _network(value: bytes) -> Network:
    text = bytes(value).decode(errors="replace")
    if "/" not in text:
        raise ValueError(_NO_OVERLOAD)
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise ValueError(_NO_OVERLOAD) from None


def contains_ip(value: bytes, other: bytes) -> bool:
    """Tell whether a network has an address."""
    return _address(other) in _network(value)


def contains_ip_text(value: bytes, other: str) -> bool:
    """Tell whether a network has an address that is yet to be parsed."""
    return _parsed_address(other) in _network(value)


def contains_cidr(value: bytes, other: bytes) -> bool:
    """Tell whether a network has all of another."""
    outer, inner = _network(value), _network(other)
    return (
        outer.version == inner.version
        and outer.prefixlen <= inner.prefixlen
        and inner.network_address in outer
    )


def contains_cidr_text(value: bytes, other: str) -> bool:
    """Tell whether a network has all of one that is yet to be parsed."""
    return contains_cidr(value, cidr(other))


def ip_of_cidr(value: bytes) -> bytes:
    """Return the address in front of the slash, as it was given."""
    return bytes(value).partition(b"/")[0]


def prefix_length(value: bytes) -> int:
    """Return how many bits name the network."""
    return _network(value).prefixlen


def masked(value: bytes) -> bytes:
    """Return the network with all bits of the host cleared."""
    return str(ip_interface(bytes(value).decode()).network).encode()
