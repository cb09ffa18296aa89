"""Published vectors for every primitive, through the functions that the protocols call."""

from __future__ import annotations

import hmac

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from fedkge.crypto.kernels import siphash
from fedkge.crypto.keys import EphemeralKey, Identity, derive_key, verify_signature
from fedkge.crypto.masks import STREAMS, add_masks
from fedkge.crypto.rings import WORD32
from fedkge.crypto.shares import PRIME
from fedkge.crypto.union.oprf import ORDER, multiply_points
from fedkge.crypto.union.pseudonyms import pseudonyms_under

ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")


def mask_bytes(key: bytes, size: int) -> bytes:
    words = np.zeros(-(-size // 4), dtype="<u4")
    add_masks(words, WORD32, [(key, 1)])
    return words.tobytes()[:size]


def test_aes_256_counter_mode_of_sp_800_38a_f_5_5() -> None:
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")
    assert (
        Cipher(AES256(key), CTR(counter)).encryptor().update(plain).hex()
        == "601ec313775789a5b7a7f504bbf3d228"
    )


def test_mask_stream_has_the_pinned_first_words() -> None:
    words = np.zeros(4, dtype="<u4")
    add_masks(words, WORD32, [(b"1" * 32, 1)])
    assert [f"{word:08x}" for word in words] == ["654461d5", "f9714096", "403b39eb", "e3b9e218"]


def test_mask_stream_is_the_gcm_specification_s_test_case_14() -> None:
    assert mask_bytes(bytes(32), 16).hex() == "cea7403d4d606b6e074ec5d3baf39d18"


@pytest.mark.parametrize("size", [4, 16, 20, 4096, (1 << 17) - 4, 1 << 17, (1 << 17) + 4, 3 * (1 << 17) + 8])
def test_mask_stream_is_counter_mode_from_two(size: int) -> None:
    counter = bytes(15) + b"\x02"
    expected = Cipher(AES256(b"k" * 32), CTR(counter)).encryptor().update(bytes(size))
    assert mask_bytes(b"k" * 32, size) == expected


@pytest.mark.parametrize("sizes", [[16], [5, 11, 16], [1 << 17, 4], [1 << 17, 1 << 17, 12]])
def test_both_ways_to_make_the_stream_give_the_same_bits(sizes: list[int]) -> None:
    made = []
    for name in ("CTR", "GCM"):
        stream = STREAMS[name](b"1" * 32)
        made.append(b"".join(stream.update(bytes(size)) for size in sizes))
    assert made[0] == made[1]
    assert made[0][:4].hex() == "d5614465"  # 654461d5 as a little-endian word


def test_x25519_of_rfc_7748_section_6_1() -> None:
    alice, bob = EphemeralKey(ALICE), EphemeralKey(BOB)
    shared = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    assert alice.public.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert alice.agree(bob.public, b"info", "Bob") == derive_key(shared, b"info")
    assert bob.agree(alice.public, b"info", "Alice") == derive_key(shared, b"info")


def test_hkdf_of_rfc_5869_case_3() -> None:
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert derive_key(b"\x0b" * 22, b"").hex() == expected


def test_ed25519_of_rfc_8032_test_1() -> None:
    identity = Identity(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
    signature = bytes.fromhex(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
        "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    assert identity.public.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert identity.sign(b"") == signature
    verify_signature(identity.public, signature, b"", "RFC 8032")


def test_hmac_of_rfc_4231_case_2() -> None:
    digest = bytes.fromhex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
    found = pseudonyms_under(b"Jefe", ["what do ya want for nothing?"])
    assert int(found.high[0]) == int.from_bytes(digest[:8], "little") % (1 << 60)
    assert int(found.low[0]) == int.from_bytes(digest[8:16], "little") % (1 << 30)


def test_pseudonyms_are_hmac_for_names_of_any_length() -> None:
    names = ["", "a", "b" * 55, "c" * 64, "d" * 200, "Ångström"]
    found = pseudonyms_under(b"k" * 32, names)
    for i, name in enumerate(names):
        digest = hmac.digest(b"k" * 32, name.encode(), "sha256")
        assert int(found.high[i]) == int.from_bytes(digest[:8], "little") % (1 << 60)


def test_siphash_of_the_reference_implementation() -> None:
    first, second = np.frombuffer(bytes(range(16)), dtype="<u8")
    assert int(siphash(first, second, first, second)) == 0x3F2ACC7F57C29BDB


def test_p_256_doubles_the_base_point() -> None:
    base = bytes.fromhex("6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296")
    double = "7cf27b188d034f7e8a52380304b51ac3c08969e277f21b35a60b48fc47669978"
    assert [point.hex() for point in multiply_points(2, [base])] == [double]
    assert multiply_points(ORDER - 2, [base]) == multiply_points(2, [base])


@pytest.mark.parametrize("number", [PRIME, ORDER, (1 << 61) - 1])
def test_the_moduli_are_prime(number: int) -> None:
    odd = (number - 1) & -(number - 1)
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        power = pow(base, (number - 1) // odd, number)
        chain = [power]
        while len(chain) < odd.bit_length() - 1:
            chain.append(chain[-1] ** 2 % number)
        assert power == 1 or number - 1 in chain
