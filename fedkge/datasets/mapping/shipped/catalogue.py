"""The mappings by name, beside Table 1 of DPKGE (Han et al., 2022), for which they were first made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedkge.datasets.mapping.mapping import Mapping
from fedkge.errors import DataError, SettingError, UnknownNameError

__all__ = ["SHIPPED", "PublishedGraph", "ShippedMapping", "mapping_of"]

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class PublishedGraph:
    """What the paper says of its extract; its relations count rdf:type."""

    entities: int
    relations: int
    train: int
    valid: int
    test: int
    confidential: int  # of train
    sample: str  # how it was drawn from the full database

    @property
    def triples(self) -> int:
        """In all three splits."""
        return self.train + self.valid + self.test


@dataclass(frozen=True)
class ShippedMapping:
    """A mapping of a public schema, and the same as it was published."""

    name: str
    about: str
    published: PublishedGraph

    def path(self, as_published: bool = False) -> Path:
        """Its R2RML document."""
        return _FOLDER / f"{self.name}{'-as-published' if as_published else ''}.ttl"


SHIPPED = {
    mapping.name: mapping
    for mapping in (
        ShippedMapping(
            "eicu",
            "eICU Collaborative Research Database 2.0: ICU stays in 208 hospitals",
            PublishedGraph(122_186, 16, 289_719, 29_824, 33_724, 165_917, "0.006"),
        ),
        ShippedMapping(
            "mimic-iii",
            "MIMIC-III 1.4: admissions to one hospital's ICUs",
            PublishedGraph(308_878, 97, 1_482_059, 152_565, 181_626, 652_605, "2150-01"),
        ),
    )
}


def mapping_of(name: str, as_published: bool = False) -> Mapping:
    """A shipped mapping by name, or one's own by path."""
    if name in SHIPPED:
        return Mapping.read(SHIPPED[name].path(as_published))
    if as_published:
        raise SettingError(
            f"'{name}' is no shipped mapping ({', '.join(SHIPPED)}): nothing was published of it"
        )
    if Path(name).is_file():
        return Mapping.read(Path(name))
    if "/" in name or name.endswith(".ttl"):
        raise DataError(f"{name}: no such file; give an R2RML document, or one of {', '.join(SHIPPED)}")
    raise UnknownNameError("mapping", name, SHIPPED)
