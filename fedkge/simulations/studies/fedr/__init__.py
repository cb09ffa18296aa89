"""FedR (Zhang et al., 2022): "Efficient Federated Learning on Knowledge Graphs via Privacy-preserving
Relation Embedding Aggregation". NoGE and KB-GAT are left out.
"""
