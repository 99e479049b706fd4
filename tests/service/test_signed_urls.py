import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from drydock.service.problems import Refusal
from drydock.service.signed_urls import KEY_FILE, SignedUrls

PATH = "job/checkpoints/cp_1/model.safetensors"


def parts(signed: str) -> tuple[str, str]:
    query = parse_qs(urlsplit(signed).query)
    return query["expires"][0], query["signature"][0]


def test_a_signature_opens_its_own_path_until_its_end(tmp_path: Path):
    urls = SignedUrls.of(tmp_path)
    expires, signature = parts(urls.sign(PATH, int(time.time()) + 60))
    urls.check(PATH, expires, signature)
    for path, end, mark in (
        ("job/checkpoints/cp_1/config.json", expires, signature),
        ("other/checkpoints/cp_1/model.safetensors", expires, signature),
        (PATH, str(int(expires) + 1), signature),
        (PATH, expires, signature[:-1] + ("0" if signature[-1] != "0" else "1")),
        (PATH, expires, ""),
        (PATH, "", signature),
        (PATH, "9" * 400, signature),
        (PATH, "²", signature),
        (PATH, expires, "ü"),
    ):
        with pytest.raises(Refusal) as caught:
            urls.check(path, end, mark)
        assert caught.value.status == 403


def test_a_spent_signature_is_refused(tmp_path: Path):
    urls = SignedUrls.of(tmp_path)
    expires, signature = parts(urls.sign(PATH, int(time.time()) - 1))
    with pytest.raises(Refusal, match="expired"):
        urls.check(PATH, expires, signature)


def test_the_key_is_secret_and_outlives_the_service(tmp_path: Path):
    signed = SignedUrls.of(tmp_path).sign(PATH, int(time.time()) + 60)
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
    SignedUrls.of(tmp_path).check(PATH, *parts(signed))
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(Refusal):
        SignedUrls.of(other).check(PATH, *parts(signed))


def test_a_key_that_was_never_written_out_is_made_anew(tmp_path: Path):
    (tmp_path / KEY_FILE).touch()
    signed = SignedUrls.of(tmp_path).sign(PATH, int(time.time()) + 60)
    with pytest.raises(Refusal):
        SignedUrls(b"").check(PATH, *parts(signed))
    SignedUrls.of(tmp_path).check(PATH, *parts(signed))
