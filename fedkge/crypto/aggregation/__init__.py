"""Secure aggregation: the server learns the survivors' sum and nothing else (Bonawitz et al. 2017)."""

from fedkge.crypto.aggregation.client import SecureAggregationClient
from fedkge.crypto.aggregation.masked import masked_words
from fedkge.crypto.aggregation.pairwise_keys import UNBOUND
from fedkge.crypto.aggregation.server import SecureAggregationServer

__all__ = ["UNBOUND", "SecureAggregationClient", "SecureAggregationServer", "masked_words"]
