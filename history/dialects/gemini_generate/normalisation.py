"""Normalisation of Gemini requests: field names in camelCase, and JSON Schema in place of Google's schemas.

Google accepts each field name in camelCase and in snake_case, and its own SDK mixes both in one request. Only names
that the API defines are changed. Names of users (in arguments, responses, schemas, labels) and unknown names stay.
"""

import re
from collections.abc import Mapping

from history.dialects.json_access import items, obj
from history.entries import JsonDict, JsonObject

# Fields of an object of the API: a name in either spelling → camelCase, and the fields below it.
Names = dict[str, tuple[str, "Names"]]

_CAPITAL = re.compile("[A-Z]")


def _snake_case(name: str) -> str:
    return _CAPITAL.sub(lambda match: f"_{match[0].lower()}", name)


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


def to_camel_case(body: object) -> object:
    """The request in camelCase. A request to count tokens may be in an envelope, which is removed."""
    request = _renamed(body, _BODY)
    if "contents" in obj(request):
        return request
    return obj(request).get("generateContentRequest") or request


def _renamed(value: object, names: Names) -> object:
    if isinstance(value, list | tuple):
        return [_renamed_object(one, names) for one in value]
    return _renamed_object(value, names)


def _renamed_object(value: object, names: Names) -> object:
    if not isinstance(value, Mapping):
        return value
    renamed: JsonDict = {}
    for name, content in value.items():
        own, below = names.get(name) or (name, {})
        # If a request has both spellings, camelCase wins unless it is null.
        if renamed.get(own) is None and (own == name or value.get(own) is None):
            renamed[own] = _renamed(content, below) if below else content
    return renamed


# Google describes parameters and answers in a dialect of OpenAPI: types in capitals, `nullable`, an order of
# properties, counts as texts. Other vendors reject that. Clients also send JSON Schema, which stays unchanged.

TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"})
UNSPECIFIED = ("type", "TYPE_UNSPECIFIED")
COUNTS = frozenset({"maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties"})
# Google's names in snake_case, and names that JSON Schema spells differently.
NAMES = {_snake_case(name): name for name in (*COUNTS, "anyOf", "additionalProperties")}
NAMES |= {"ref": "$ref", "defs": "$defs"}
# Fields with a schema, and with an object of schemas. `anyOf` has a list.
ONE, NAMED = frozenset({"items", "additionalProperties"}), frozenset({"properties", "$defs"})
# JSON Schema has no equivalent; `nullable` becomes a type.
LEFT_OUT = frozenset({"propertyOrdering", "property_ordering", "nullable"})


def as_json_schema(schema: JsonObject) -> JsonDict:
    written = {
        (own := NAMES.get(name, name)): _value(own, value)
        for name, value in schema.items()
        if name not in LEFT_OUT and (name, value) != UNSPECIFIED
    }
    return _or_null(written) if schema.get("nullable") is True else written


def _value(name: str, value: object) -> object:
    if name == "type":
        return value.lower() if isinstance(value, str) and value in TYPES else value
    if name in COUNTS and isinstance(value, str) and value.isdecimal():
        return int(value)
    if name in ONE:
        return _inner(value)
    if name == "anyOf":
        return [_inner(one) for one in items(value)]
    if name in NAMED:
        return {inner: _inner(one) for inner, one in obj(value).items()}
    return value


def _inner(schema: object) -> object:
    """JSON Schema also knows true and false."""
    return as_json_schema(schema) if isinstance(schema, Mapping) else schema


def _or_null(schema: JsonDict) -> JsonDict:
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    choices = {"enum": [*items(schema["enum"]), None]} if "enum" in schema else {}
    return {**schema, **choices, "type": [schema["type"], "null"]} if isinstance(schema.get("type"), str) else schema
