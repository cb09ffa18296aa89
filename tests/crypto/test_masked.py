"""What travels can be read by who is no party: the words of a masked vector, and nothing of its content."""

from __future__ import annotations

import numpy as np
import pytest

from fedkge.crypto import WORD32
from fedkge.crypto.aggregation import masked_words
from fedkge.crypto.wire import Kind, Writer
from fedkge.errors import MessageError
from tests.crypto.parties import Round, make_session, random_vectors


def test_the_words_are_those_that_the_server_adds() -> None:
    round_ = Round(make_session(3), random_vectors(3, 8, WORD32))
    deliveries = round_.deliveries()
    messages = [client.mask(deliveries[u], round_.vectors[u]) for u, client in enumerate(round_.clients)]
    words = [masked_words(message) for message in messages]
    assert all(not np.array_equal(word, vector) for word, vector in zip(words, round_.vectors, strict=True))
    for client, message in enumerate(messages):
        round_.server.collect(client, message)
    np.testing.assert_array_equal(round_.server._sum, np.sum(words, axis=0, dtype=np.uint32))


def test_other_messages_and_damaged_ones_are_refused() -> None:
    message = Writer(Kind.MASKED, bytes(32), 1).raw(bytes(96)).array(np.arange(4, dtype="<u4")).finish()
    assert masked_words(message).tolist() == [0, 1, 2, 3]
    for damaged in (message[:20], message[:-1], message + b"\0"):
        with pytest.raises(MessageError):
            masked_words(damaged)
    with pytest.raises(MessageError, match="MASKED: expected here"):
        masked_words(Writer(Kind.REVEAL, bytes(32), 1).array(np.arange(4, dtype="<u4")).finish())
