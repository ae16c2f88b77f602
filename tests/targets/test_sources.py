"""The hub is asked once, and each of its answers leads to a model or to one line."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

from outrider.errors import LoadError, OptionError
from outrider.targets.sources import find_source


def _hub_answers(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> list[str]:
    """Have the hub answer any question with an error, or well; return the questions asked."""
    asked: list[str] = []

    def model_info(self: huggingface_hub.HfApi, repo_id: str, **options: object) -> None:
        asked.append(repo_id)
        if error is not None:
            raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    return asked


def _http_error(kind: type[HfHubHTTPError]) -> HfHubHTTPError:
    class Answer(kind):  # type: ignore[valid-type, misc]  # a real one wants a whole response
        def __init__(self) -> None:
            pass

        def __str__(self) -> str:
            return "503 busy\nRequest ID: 7"

    answer: HfHubHTTPError = Answer()
    return answer


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (RepositoryNotFoundError, "unknown model 'owner/name': no such folder, and no such model"),
        (GatedRepoError, "cannot load owner/name: access is gated; accept its terms"),
        (HfHubHTTPError, "cannot load owner/name: the hub answered 503 busy Request ID: 7"),
    ],
)
def test_a_refusal_by_the_hub_is_one_line(
    kind: type[HfHubHTTPError], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _hub_answers(monkeypatch, _http_error(kind))
    with pytest.raises(LoadError) as caught:
        find_source("owner/name")
    assert str(caught.value).startswith(problem)
    assert asked == ["owner/name"]


def test_a_known_model_is_left_to_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    _hub_answers(monkeypatch, None)
    source = find_source("owner/name")
    assert source.description() == source.weights(None) == "owner/name"
    assert source.options == {}
    assert source.file_bytes() is None


def test_without_a_network_a_downloaded_model_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    _hub_answers(monkeypatch, ConnectionError("no route"))
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda *args: "/some/config.json"
    )
    assert find_source("owner/name").options == {"local_files_only": True}


def test_without_a_network_an_unknown_model_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    _hub_answers(monkeypatch, ConnectionError("no route"))
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *args: None)
    with pytest.raises(LoadError, match="not among the downloaded models, and the hub cannot be"):
        find_source("owner/name")


def test_local_folders_win_over_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _hub_answers(monkeypatch, None)
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    (folder / "config.json").touch()
    (folder / "pytorch_model.bin").write_bytes(b"12345")
    monkeypatch.chdir(tmp_path)
    assert find_source("owner/name").file_bytes() == 5
    assert asked == []


def test_a_suffix_is_part_of_the_name_and_not_of_the_place(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    for suffix in ("int8", "bnb8"):
        source = find_source(f"{tmp_path}@{suffix}")
        assert source.spec == f"{tmp_path}@{suffix}"
        assert (source.location, source.quantization) == (str(tmp_path), suffix)
    assert find_source(str(tmp_path)).quantization is None


def test_the_hub_is_not_asked_for_a_suffix(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _hub_answers(monkeypatch, None)
    source = find_source("owner/name@int8")
    assert asked == ["owner/name"]
    assert (source.location, source.quantization) == ("owner/name", "int8")


@pytest.mark.parametrize("spec", ["smollm2-135m@int4", "owner/name@", "x@int8@int8@INT8"])
def test_an_unknown_suffix_is_an_option_error(spec: str) -> None:
    suffix = spec.rpartition("@")[2]
    problem = f"ends in the unknown suffix @{suffix}; known are @int8 and @bnb8"
    with pytest.raises(OptionError, match=problem):
        find_source(spec)


def test_a_folder_may_have_a_suffix_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "v2@int8"
    folder.mkdir()
    (folder / "config.json").touch()
    source = find_source(str(folder))
    assert (source.location, source.quantization) == (str(folder), None)
    assert find_source(f"{folder}@int8").quantization == "int8"
    with pytest.raises(LoadError, match="no such file or folder"):
        find_source(str(tmp_path / "a@b" / "missing"))
