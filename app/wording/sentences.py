"""Sentences for the closed sets of the protocol: error codes, engine states, ends of replies.

The engine's own `message` carries the figures and is shown below these words, never parsed. How a
process ended is worded where it is known, in `app.services.outcome`. The texts are phrases, so that
they follow a change of language.
"""

from dataclasses import dataclass

from app.wording.phrases import Phrase, tr
from engine.protocol.errors import ErrorCode
from engine.protocol.messages import EngineState, FinishReason


@dataclass(frozen=True, slots=True)
class ErrorWords:
    """What is said about one kind of failure.

    Attributes:
        title: what failed, for the head of an error card.
        cause: what that means, one sentence.
        action: what helps, one sentence.
    """

    title: Phrase
    cause: Phrase
    action: Phrase


_ERRORS = {
    ErrorCode.INVALID_REQUEST: ErrorWords(
        tr("The request was not accepted"),
        tr("One of its values does not fit this model."),
        tr("Change the value and try again."),
    ),
    ErrorCode.UNSUPPORTED_CHECKPOINT: ErrorWords(
        tr("This model is not supported"),
        tr("The engine knows no model of this kind."),
        tr("Choose another model."),
    ),
    ErrorCode.CORRUPT_CHECKPOINT: ErrorWords(
        tr("The model's files are damaged"),
        tr("A file is incomplete or was changed."),
        tr("Convert or copy the model again."),
    ),
    ErrorCode.BUDGET: ErrorWords(
        tr("It does not fit into memory"),
        tr("More memory is needed than is free."),
        tr("Use a smaller cache or context."),
    ),
    ErrorCode.DISK_FULL: ErrorWords(
        tr("The disk is full"),
        tr("There is no room to write the file."),
        tr("Free some space or choose another folder."),
    ),
    ErrorCode.FILE_ACCESS: ErrorWords(
        tr("A file cannot be read or written"),
        tr("It is missing, locked or protected."),
        tr("Check the folder and its rights."),
    ),
    ErrorCode.CANCELLED: ErrorWords(
        tr("Stopped"),
        tr("It was stopped on request."),
        tr("Start again."),
    ),
    ErrorCode.NETWORK: ErrorWords(
        tr("The hub cannot be reached"),
        tr("There is no network, or a proxy or server does not answer."),
        tr("Check the network and try again."),
    ),
    ErrorCode.TOKEN: ErrorWords(
        tr("An access token is needed"),
        tr("The hub gives this model only to people who are signed in."),
        tr("Enter a token."),
    ),
    ErrorCode.GATED: ErrorWords(
        tr("The licence must be accepted first"),
        tr("The authors ask for that on the model's page."),
        tr("Open the page."),
    ),
    ErrorCode.NOT_FOUND: ErrorWords(
        tr("The hub has no such model"),
        tr("It was renamed or taken away, or the name has a typing error."),
        tr("Check the name."),
    ),
    ErrorCode.DEVICE: ErrorWords(
        tr("The device failed"),
        tr("The driver or the graphics card reported an error, and the engine stopped."),
        tr("Restart the engine."),
    ),
    ErrorCode.PROTOCOL: ErrorWords(
        tr("App and engine do not match"),
        tr("They were installed in different versions."),
        tr("Install the matching engine."),
    ),
    ErrorCode.INTERNAL: ErrorWords(
        tr("The engine made a mistake"),
        tr("This is a fault of ours; the log has the details."),
        tr("Restart the engine."),
    ),
}

_STATES = {
    EngineState.IDLE: tr("No model"),
    EngineState.LOADING: tr("Loading"),
    EngineState.READY: tr("Ready"),
    EngineState.GENERATING: tr("Generating"),
    EngineState.MOVING: tr("Moving memory"),
    EngineState.STOPPING: tr("Stopping"),
}

_ENDS = {
    FinishReason.STOP: tr("Complete"),
    FinishReason.LENGTH: tr("Ended at the token limit"),
    FinishReason.CANCELLED: tr("Stopped"),
    FinishReason.ERROR: tr("Ended by an error"),
}


def error_words(code: ErrorCode) -> ErrorWords:
    """Return what is said about a kind of failure."""
    return _ERRORS[code]


def state_words(state: EngineState) -> Phrase:
    """Return the engine's state in a word or two."""
    return _STATES[state]


def finish_words(reason: FinishReason) -> Phrase:
    """Return why a reply ended, in a few words."""
    return _ENDS[reason]
