"""IP addresses and networks in CEL, and Kubernetes' functions on them.

An address is the bytes of its canonical text, a network those of ``address/bits``. They need no
tag, since no tagged value (see ``values``) has this form; equal bytes mean equal values, and
CEL's own ``string()`` returns the same text as in Kubernetes.
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
    """Parse an address; raises ``ValueError``, also for zones and IPv4-mapped IPv6."""
    return str(_parsed_address(text)).encode()


def is_canonical(text: str) -> bool:
    """Return whether a text is the canonical form of its address; raises ``ValueError``."""
    return str(_parsed_address(text)) == text


def _parsed_address(text: str) -> Address:
    try:
        address = ip_address(text)
    except ValueError as error:
        raise ValueError(
            f'IP Address "{text}" parse error during conversion from string: {error}'
        ) from None
    # Go's netip accepts both, Kubernetes' library refuses them: an address with a zone means
    # something on one machine only, and a mapped one has two families.
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
    """Return whether all bits are 0."""
    return _address(value).is_unspecified


def is_loopback(value: bytes) -> bool:
    """Return whether the address is in 127.0.0.0/8, or ::1."""
    return _address(value).is_loopback


def is_link_local_multicast(value: bytes) -> bool:
    """Return whether the address is in 224.0.0.0/24, or a link-local multicast group of IPv6."""
    address = _address(value)
    # Python's is_multicast has no scopes.
    if isinstance(address, IPv4Address):
        return address in _LINK_LOCAL_GROUPS_V4
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2


def is_link_local_unicast(value: bytes) -> bool:
    """Return whether the address is in 169.254.0.0/16 or fe80::/10."""
    return _address(value).is_link_local


def is_global_unicast(value: bytes) -> bool:
    """Return whether the address is none of the special ones above; private ones are global."""
    address = _address(value)
    # Go's IsGlobalUnicast; Python's is_global excludes private addresses.
    return not (
        address in _NOWHERE_GLOBAL
        or address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    )


# ---- networks ----------------------------------------------------------------------------------


def cidr(text: str) -> bytes:
    """Parse ``address/bits``; raises ``ValueError``."""
    # Host bits are kept, and two networks that differ in them are not equal, as in Kubernetes;
    # ``masked`` clears them.
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


def contains_ip(value: bytes, other: bytes | str) -> bool:
    """Return whether a network contains an address, also one given as text."""
    address = _parsed_address(other) if isinstance(other, str) else _address(other)
    return address in _network(value)


def contains_cidr(value: bytes, other: bytes | str) -> bool:
    """Return whether a network contains all of another, also one given as text."""
    outer, inner = _network(value), _network(cidr(other) if isinstance(other, str) else other)
    return (
        outer.version == inner.version
        and outer.prefixlen <= inner.prefixlen
        and inner.network_address in outer
    )


def ip_of_cidr(value: bytes) -> bytes:
    """Return the address of a network, with its host bits."""
    return bytes(value).partition(b"/")[0]


def prefix_length(value: bytes) -> int:
    """Return the number of network bits."""
    return _network(value).prefixlen


def masked(value: bytes) -> bytes:
    """Return the network with all host bits cleared."""
    return str(ip_interface(bytes(value).decode()).network).encode()
