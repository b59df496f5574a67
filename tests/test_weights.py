import json
from pathlib import Path

import pytest
import torch
from torch import nn

from vmivae.errors import DataError
from vmivae.weights import load_network, save_network


def rebuilt(description: dict[str, int]) -> nn.Linear:
    return nn.Linear(description["inputs"], 2)


def test_what_was_saved_is_read_back_and_no_global_random_number_is_drawn(tmp_path: Path) -> None:
    network = nn.Linear(3, 2).train()
    save_network(network, {"inputs": 3}, tmp_path / "network")
    assert json.loads((tmp_path / "network/model.json").read_text()) == {"format": 1, "inputs": 3}
    state = torch.get_rng_state()
    again = load_network(tmp_path / "network", rebuilt)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(again.weight, network.weight)
    assert not again.training


def test_weights_of_another_description_are_refused(tmp_path: Path) -> None:
    save_network(nn.Linear(3, 2), {"inputs": 4}, tmp_path)
    with pytest.raises(DataError, match=r"model\.safetensors: does not hold the weights"):
        load_network(tmp_path, rebuilt)
