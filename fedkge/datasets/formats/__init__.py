"""File formats of graphs and splits; a new one is a class in a module of its own and a line here."""

from fedkge.datasets.formats.file_format import Format, GraphFiles, Layout, SplitFiles, TripleFile
from fedkge.plugins import Registry

__all__ = ["FORMATS", "Format", "GraphFiles", "Layout", "SplitFiles", "TripleFile"]

FORMATS: Registry[type[Format]] = Registry(
    "format",
    "fedkge.formats",
    {
        "text": "fedkge.datasets.formats.text:Text",
        "idform": "fedkge.datasets.formats.idform:IdForm",
        "numbered": "fedkge.datasets.formats.numbered:Numbered",
        "companies": "fedkge.datasets.formats.companies:Companies",
        "network": "fedkge.datasets.networks.edge_list:EdgeList",
        "arcs": "fedkge.datasets.networks.edge_list:Arcs",
        "rdf": "fedkge.datasets.formats.rdf:Rdf",
        "pickle": "fedkge.datasets.formats.pickles:FedEPickle",
    },
)
