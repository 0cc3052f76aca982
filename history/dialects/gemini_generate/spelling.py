"""Gemini's requests in one spelling.

Google reads each of its names in camelCase and in snake_case, and its own SDK mixes the two in one request. So the
names that the API defines are spelt alike here, once, before anybody looks. What people name themselves (arguments,
responses, schemas, labels) lies below names that list none, and stays as it is, as do names that nobody knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from history.dialects.json_access import obj

# Of a message of the API: a name in either spelling, its camelCase, and the names below it.
Names = dict[str, tuple[str, "Names"]]

_CAPITAL = re.compile("[A-Z]")


def _snake_case(name: str) -> str:
    return _CAPITAL.sub(lambda found: f"_{found[0].lower()}", name)


def _names(*plain: str, **nested: Names) -> Names:
    known: Names = {name: (name, {}) for name in plain} | {name: (name, below) for name, below in nested.items()}
    return known | {_snake_case(name): named for name, named in known.items()}


_BLOB = _names("mimeType", "displayName")
_FILE = _names("mimeType", "displayName", "fileUri")
_CONTENT = _names(
    parts=_names(
        *("thoughtSignature", "executableCode", "codeExecutionResult", "mediaResolution", "partMetadata"),
        *("audioTranscription", "mediaProcessing", "speechMetadata"),
        inlineData=_BLOB,
        fileData=_FILE,
        functionCall=_names("partialArgs", "willContinue"),
        functionResponse=_names("willContinue", parts=_names("mediaProcessing", inlineData=_BLOB, fileData=_FILE)),
        toolCall=_names("toolType"),
        toolResponse=_names("toolType"),
        videoMetadata=_names("startOffset", "endOffset"),
    )
)
_TOOL = _names(
    *("googleSearch", "googleSearchRetrieval", "googleMaps", "codeExecution", "urlContext", "fileSearch"),
    *("computerUse", "enterpriseWebSearch", "mcpServers", "parallelAiSearch", "exaAiSearch"),
    functionDeclarations=_names("parametersJsonSchema", "responseJsonSchema"),
)
_TOOL_CONFIG = _names(
    "includeServerSideToolInvocations",
    functionCallingConfig=_names("allowedFunctionNames", "streamFunctionCallArguments"),
    retrievalConfig=_names("latLng", "languageCode"),
)
_GENERATION_CONFIG = _names(
    *("maxOutputTokens", "stopSequences", "topP", "topK", "candidateCount", "presencePenalty", "frequencyPenalty"),
    *("responseMimeType", "responseSchema", "responseJsonSchema", "responseModalities", "responseLogprobs"),
    *("responseFormat", "mediaResolution", "enableEnhancedCivicAnswers", "audioTimestamp", "routingConfig"),
    *("modelSelectionConfig", "enableAffectiveDialog", "translationConfig", "audioTranscriptionConfig"),
    thinkingConfig=_names("includeThoughts", "thinkingBudget", "thinkingLevel"),
    imageConfig=_names("aspectRatio", "imageSize"),
    speechConfig=_names("voiceConfig", "multiSpeakerVoiceConfig", "languageCode"),
)
_REQUEST = _names(
    *("safetySettings", "cachedContent", "serviceTier"),
    contents=_CONTENT,
    systemInstruction=_CONTENT,
    tools=_TOOL,
    toolConfig=_TOOL_CONFIG,
    generationConfig=_GENERATION_CONFIG,
)
_BODY = _REQUEST | _names(generateContentRequest=_REQUEST)


def in_one_spelling(body: Any) -> Any:
    """The request in camelCase. One of which tokens are counted may come in an envelope: then what is in it."""
    written = _spelt(body, _BODY)
    if "contents" in obj(written):
        return written
    return obj(written).get("generateContentRequest") or written


def _spelt(said: Any, names: Names) -> Any:
    """An object, or each of a list; below a name that has no names of its own nothing is touched."""
    if isinstance(said, list | tuple):
        return [_object(one, names) for one in said]
    return _object(said, names)


def _object(said: Any, names: Names) -> Any:
    if not isinstance(said, Mapping):
        return said
    written: dict[str, Any] = {}
    for name, value in said.items():
        own, below = names.get(name) or (name, {})
        # Whoever writes both is heard in camelCase, unless there is nothing in it.
        if written.get(own) is None and (own == name or said.get(own) is None):
            written[own] = _spelt(value, below) if below else value
    return written
