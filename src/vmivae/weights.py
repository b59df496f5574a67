"""A network as a folder: weights in safetensors, and a description in JSON that rebuilds the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from vmivae.errors import DataError, ParameterError
from vmivae.files import read_json, replace_directory, write_json

FORMAT = 1

Network = TypeVar("Network", bound=nn.Module)


def save_network(network: nn.Module, description: Mapping[str, Any], path: Path) -> None:
    """Write the folder `path` with `model.safetensors` and `model.json`; whole or not at all.

    Args:
        network: on any device.
        description: all that rebuilds it but for its weights.
        path: replaced if it is there.
    """
    from safetensors.torch import save

    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    with replace_directory(path) as folder:
        write_json(folder / "model.json", {"format": FORMAT, **description})
        (folder / "model.safetensors").write_bytes(save(weights))


def load_network(path: Path, rebuild: Callable[[dict[str, Any]], Network]) -> Network:
    """Read what `save_network` wrote; the network is on the CPU, in evaluation mode.

    Args:
        path: the folder.
        rebuild: makes the network from its description, with any weights; a description that is none may
            raise KeyError, TypeError, ValueError or ParameterError.

    Raises:
        DataError: a file is missing, damaged, or does not fit the other.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    description, weights = path / "model.json", path / "model.safetensors"
    try:
        content = read_json(description)
        if content["format"] != FORMAT:
            raise DataError(f"{description}: format must be {FORMAT}, got {content['format']}")
        # New weights are drawn only to be replaced.
        with torch.random.fork_rng([]):
            network = rebuild(content)
    except OSError as error:
        raise DataError(f"{description}: cannot be read ({error.strerror or error})") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise DataError(f"{description}: is not JSON") from None
    except (KeyError, TypeError, ValueError, RuntimeError, MemoryError, ParameterError) as error:
        raise DataError(f"{description}: does not describe a model ({error})") from None
    try:
        tensors = load(weights.read_bytes())
        for name, tensor in tensors.items():
            if not tensor.isfinite().all():
                raise DataError(f"{weights}: {name} is not finite; what was trained has diverged")
        network.load_state_dict(tensors)
    except OSError as error:
        raise DataError(f"{weights}: cannot be read ({error.strerror or error})") from None
    except SafetensorError as error:
        raise DataError(f"{weights}: is damaged ({error})") from None
    except RuntimeError:
        raise DataError(f"{weights}: does not hold the weights of the model in {description}") from None
    return network.eval()
