"""Which addresses belong to the public Internet."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

IPAddress = IPv4Address | IPv6Address

_GLOBAL_UNICAST = IPv6Network("2000::/3")
_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
# Beside what ``is_global`` of every Python 3.11 knows: protocol assignments, relays and tunnels
# (6to4, Teredo) that lead to addresses nobody has checked, and documentation.
_NOT_PUBLIC: tuple[IPv4Network | IPv6Network, ...] = (
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv6Network("2001::/23"),
    IPv6Network("2002::/16"),
    IPv6Network("3fff::/20"),
)


def read_address(text: str) -> IPAddress:
    """Read an address as the resolver gives it; the zone of a link-local one is left out."""
    return ip_address(text.partition("%")[0])


def is_public(address: IPAddress) -> bool:
    """True for an address of the public Internet; one inside another counts as itself."""
    if isinstance(address, IPv6Address):
        if address in _MAPPED or address in _NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
        if address not in _GLOBAL_UNICAST:
            return False
    if any(address.version == net.version and address in net for net in _NOT_PUBLIC):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved
