"""DPNE (Xu et al., 2018): "DPNE: Differentially private network embedding".

Accuracies of vertex classification (tables 1 and 2) and of link prediction (3 and 4), means of ten runs.
"""
