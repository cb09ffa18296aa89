"""DPKGE (Han et al., 2022): "A framework for differentially-private knowledge graph embeddings".

MR and Hits are means over five runs; Hits are percentages of Hits@10.
"""
