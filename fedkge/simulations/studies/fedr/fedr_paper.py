"""The figures of Hu et al., "Efficient Federated Learning on Knowledge Graphs via Privacy-preserving Relation
Embedding Aggregation" (2022). Table numbers are theirs; NoGE and KB-GAT are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "CLIENTS",
    "DATASETS",
    "MODELS",
    "ROUNDS_TO_TARGET",
    "STATISTICS",
    "STRATEGIES",
    "TABLE_2",
    "TABLE_7",
]

DATASETS = ("DDB14", "WN18RR", "FB15k-237")
CLIENTS = (5, 10, 15, 20)
MODELS = ("TransE", "RotatE", "DistMult", "ComplEx")
STRATEGIES = ("Local", "FedE", "FedR")

# Table 2, MRR: (model, strategy) -> dataset -> one for each number of clients.
TABLE_2: Mapping[tuple[str, str], Mapping[str, tuple[float, float, float, float]]] = {
    ("TransE", "Local"): {
        "DDB14": (0.4206, 0.2998, 0.2464, 0.2043),
        "WN18RR": (0.0655, 0.0319, 0.0378, 0.0285),
        "FB15k-237": (0.2174, 0.1255, 0.1087, 0.0874),
    },
    ("TransE", "FedE"): {
        "DDB14": (0.4572, 0.3493, 0.3076, 0.2962),
        "WN18RR": (0.1359, 0.1263, 0.1204, 0.1419),
        "FB15k-237": (0.2588, 0.2230, 0.2065, 0.1892),
    },
    ("TransE", "FedR"): {
        "DDB14": (0.4461, 0.3289, 0.2842, 0.2761),
        "WN18RR": (0.0859, 0.0779, 0.0722, 0.0668),
        "FB15k-237": (0.2520, 0.2052, 0.1867, 0.1701),
    },
    ("RotatE", "Local"): {
        "DDB14": (0.4187, 0.2842, 0.2411, 0.2020),
        "WN18RR": (0.1201, 0.0649, 0.0513, 0.0155),
        "FB15k-237": (0.2424, 0.1991, 0.1526, 0.0860),
    },
    ("RotatE", "FedE"): {
        "DDB14": (0.4667, 0.3635, 0.3244, 0.3031),
        "WN18RR": (0.2741, 0.1936, 0.1287, 0.0902),
        "FB15k-237": (0.2682, 0.2278, 0.2199, 0.1827),
    },
    ("RotatE", "FedR"): {
        "DDB14": (0.4477, 0.3184, 0.2765, 0.2681),
        "WN18RR": (0.1372, 0.1271, 0.1074, 0.0912),
        "FB15k-237": (0.2510, 0.2080, 0.1854, 0.1586),
    },
    ("DistMult", "Local"): {
        "DDB14": (0.2248, 0.1145, 0.0764, 0.0652),
        "WN18RR": (0.0654, 0.0517, 0.0548, 0.0374),
        "FB15k-237": (0.1133, 0.0773, 0.0765, 0.0689),
    },
    ("DistMult", "FedE"): {
        "DDB14": (0.3037, 0.2485, 0.2315, 0.1877),
        "WN18RR": (0.1137, 0.0946, 0.0766, 0.0670),
        "FB15k-237": (0.1718, 0.1129, 0.0901, 0.0753),
    },
    ("DistMult", "FedR"): {
        "DDB14": (0.4219, 0.3146, 0.2685, 0.2577),
        "WN18RR": (0.1350, 0.1202, 0.1198, 0.0898),
        "FB15k-237": (0.1670, 0.0999, 0.0884, 0.0814),
    },
    ("ComplEx", "Local"): {
        "DDB14": (0.3406, 0.2025, 0.1506, 0.1247),
        "WN18RR": (0.0035, 0.0033, 0.0033, 0.0022),
        "FB15k-237": (0.1241, 0.0694, 0.0571, 0.0541),
    },
    ("ComplEx", "FedE"): {
        "DDB14": (0.3595, 0.2838, 0.2411, 0.1946),
        "WN18RR": (0.0153, 0.0115, 0.0108, 0.0122),
        "FB15k-237": (0.1603, 0.1161, 0.0944, 0.0751),
    },
    ("ComplEx", "FedR"): {
        "DDB14": (0.4287, 0.3235, 0.2747, 0.2611),
        "WN18RR": (0.0203, 0.0152, 0.0152, 0.0166),
        "FB15k-237": (0.1716, 0.1174, 0.1075, 0.0993),
    },
}

# Figure 3 is drawn; section 4.3 prints two of its bars: (model, strategy, target MRR) -> rounds.
ROUNDS_TO_TARGET = {("DistMult", "FedR", 0.4): 10, ("DistMult", "FedE", 0.4): 45}

# Table 5: (dataset, clients) -> entities, their standard deviation, relations, theirs; means over clients.
STATISTICS: Mapping[tuple[str, int], tuple[float, float, float, float]] = {
    ("DDB14", 5): (4462.20, 1049.60, 12.80, 0.84),
    ("DDB14", 10): (3182.60, 668.89, 12.60, 0.70),
    ("DDB14", 15): (2533.86, 493.47, 12.50, 0.74),
    ("DDB14", 20): (2115.59, 385.56, 12.35, 0.75),
    ("WN18RR", 5): (21293.20, 63.11, 11.00, 0.00),
    ("WN18RR", 10): (13112.20, 46.70, 11.00, 0.00),
    ("WN18RR", 15): (9537.33, 45.45, 11.00, 0.00),
    ("WN18RR", 20): (7501.65, 31.72, 11.00, 0.00),
    ("FB15k-237", 5): (13359.20, 27.36, 237.00, 0.00),
    ("FB15k-237", 10): (11913.00, 31.56, 237.00, 0.00),
    ("FB15k-237", 15): (10705.87, 36.93, 236.87, 0.35),
    ("FB15k-237", 20): (9705.95, 44.10, 236.80, 0.41),
}

# Table 7, RotatE on DDB14 with three clients: strategy -> MRR, Hits@1, Hits@3, Hits@10.
TABLE_7: Mapping[str, tuple[float, float, float, float]] = {
    "Local": (0.5347, 0.5311, 0.5459, 0.5912),
    "FedE": (0.6087, 0.5070, 0.6774, 0.7916),
    "FedR": (0.5834, 0.5583, 0.5852, 0.6326),
}
