"""What is loaded before the server serves, by `--model-control-mode`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.catalog import ModelCatalog
from headrace.config import ServerConfig
from headrace.config.control import EVERY_MODEL
from headrace.control.shelf import Shelf, Taken
from headrace.control.signature import Signature, read_signature
from headrace.engines.ensemble_plan import models_of
from headrace.engines.repository import Found, find_models, read_model
from headrace.errors import ConfigError
from headrace.loader import Loader, load_all

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Started:
    """What was there at the start.

    Attributes:
        taken: What was loaded, by name; some of its versions may have failed.
        seen: What every model looked like, by name.
    """

    taken: Mapping[str, Taken]
    seen: Mapping[str, Signature]


def load_at_start(
    config: ServerConfig, shelf: Shelf, loader: Loader, catalog: ModelCatalog
) -> Started:
    """Load what the operator wants to be served from the start; called before anything serves.

    Raises:
        ConfigError: A model cannot be served, and the operator did not say that others shall be; or
            there is none, and none can come.
    """
    by_name = shelf.places().by_name
    seen = {name: read_signature(places[0]) for name, places in by_name.items() if len(places) == 1}
    found = _find(config, shelf, loader.compute_capability)
    num_faults = load_all(found, loader, catalog)
    if config.model_control_mode != "poll":  # there the models of an ensemble may come later
        num_faults += _tell_unready(catalog)
    if num_faults and config.exit_on_error:
        raise ConfigError(
            f"{num_faults} of the models cannot be served (see the log); "
            "--exit-on-error=false serves the others"
        )
    if not num_faults and not any(catalog.models()) and config.model_control_mode == "none":
        raise ConfigError(
            "there is no model to serve: name a model file, or a folder with --model-repository"
        )
    taken = {
        source.name: Taken(source, seen.get(source.name, Signature())) for source in found.models
    }
    return Started(taken, seen)


def _tell_unready(catalog: ModelCatalog) -> int:
    """Log which ensembles lack a model; return how many."""
    unready = [model for model in catalog.models() if not model.is_ready]
    for model in unready:
        log.error("%s is not ready: %s", model.spec.name, model.why_unready)
    return len(unready)


def _find(config: ServerConfig, shelf: Shelf, compute_capability: str) -> Found:
    names = config.load_model
    if config.model_control_mode != "explicit" or names == (EVERY_MODEL,):
        return find_models(
            config.model_repository, config.model_files, compute_capability=compute_capability
        )
    found = find_models((), config.model_files)  # the operator named them
    places = shelf.places()
    wanted = dict.fromkeys(names)
    while wanted:
        name, _ = wanted.popitem()
        if name in found.wrong or any(source.name == name for source in found.models):
            continue
        try:
            place = places.one(name)
            found.models.append(read_model(place, compute_capability=compute_capability))
        except ConfigError as fault:
            found.blame(name, [fault])
        else:
            wanted |= dict.fromkeys(models_of(found.models[-1].config))
    return found
