r"""Formats of API keys and tokens, by vendor: the literals that give them away, and patterns. No Django.

Each pattern begins with a literal or a short bounded class, and each repetition is bounded or possessive, so searching
takes linear time. Formats of letters and digits alone have borders on both sides (`_alone`): inside of base64
(pictures, hashes) any short prefix occurs by chance.
"""

from typing import NamedTuple

SAFE = "[A-Za-z0-9_-]"
_HEX, _WORD = "[a-f0-9]", "[A-Za-z0-9]"
_UUID = r"[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}"
# A random token holds a digit early on; an identifier of words does not.
_A_DIGIT = "(?=[A-Za-z_-]{0,60}[0-9])"
_A_CAPITAL = "(?=[a-z0-9_-]{0,60}[A-Z])"
_BASE64 = "A-Za-z0-9+/=_-"


def starts(literal: str, before: str = "A-Za-z0-9") -> str:
    """The literal, where no character of `before` precedes it, or an escape sequence does."""
    return (
        rf"{literal}(?:(?<![{before}]{literal})|(?<=\\[nrtbf]{literal})"
        rf"|(?<=%[0-9A-Fa-f]{{2}}{literal})|(?<=\\u[0-9A-Fa-f]{{4}}{literal}))"
    )


def _border(before: str = "A-Za-z0-9") -> str:
    """Where a token may begin that has no literal: the same, before its first character."""
    return rf"(?:(?<![{before}])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{{2}})|(?<=\\u[0-9A-Fa-f]{{4}}))"


def _alone(literal: str, rest: str) -> str:
    """A token of letters and digits that is not a piece of something longer."""
    return starts(literal, "A-Za-z0-9+/_-") + rest + f"(?![{_BASE64}])"


class TokenFormat(NamedTuple):
    """`needles` are in lower case, separated by spaces: without one of them in a text no pattern can match."""

    name: str
    needles: str
    patterns: tuple[str, ...]


def _format(name: str, needles: str, *patterns: str) -> TokenFormat:
    return TokenFormat(name, needles, patterns)


CLOUDS = (
    _format(
        "azure-key",
        "+ast acdb +aba +asb +aeh aiot +acr azfu azse azdo jqqj9 q~",
        r"[A-Za-z0-9+/]{76}(?:\+ASt|ACDb|\+ABa)[A-Za-z0-9+/]{6}==",
        r"[A-Za-z0-9+/]{33,42}(?:\+ASb|\+AEh|AIoT|\+ACR|AzFu|AzSe)[A-Za-z0-9+/]{5,8}={0,2}(?![A-Za-z0-9+/=])",
        rf"{_border()}{_WORD}{{76}}AZDO{_WORD}{{4}}(?!{_WORD})",
        rf"{_border()}{_WORD}{{52}}JQQJ9[A-Za-z0-9]{_WORD}{{26}}(?!{_WORD})",
        rf"{_border('A-Za-z0-9_~.-')}[A-Za-z0-9_~.-]{{3}}[78]Q~[A-Za-z0-9_~.-]{{31,37}}",
    ),
    _format(
        "aws-bedrock-key",
        "absk bedrock-api-key-",
        _alone("ABSK", r"[A-Za-z0-9+/]{100,}+={0,2}"),
        r"bedrock-api-key-[A-Za-z0-9+/=]{40,}+",
    ),
    _format("amazon-key", "amzn.mws. amzn1.oa2-cs", rf"amzn\.mws\.{_UUID}", rf"amzn1\.oa2-cs\.v1\.{_HEX}{{64}}"),
    _format("alibaba-key", "ltai", _alone("LTAI", rf"{_A_DIGIT}{_WORD}{{12,26}}")),
    _format("tencent-key", "akid", _alone("AKID", rf"{_A_DIGIT}{_WORD}{{28,40}}")),
    _format(
        "google-oauth",
        "1//0 aq.",
        rf"{_border('A-Za-z0-9/')}1//0{SAFE}{{40,}}+",
        starts(r"AQ\.") + rf"{SAFE}{{40,}}+",
        _alone("AAAA", rf"{SAFE}{{7}}:{SAFE}{{130,}}+"),
    ),
    _format(
        "fly-token",
        "fo1_ fm1_ fm1r_ fm1a_ fm2_",
        rf"{starts('fo1_')}{SAFE}{{40,}}+",
        r"fm(?:1|1r|1a|2)_[A-Za-z0-9+/=_-]{60,}+",
    ),
    _format("heroku-key", "hrku-", rf"HRKU-{SAFE}{{36,}}+"),
    _format("netlify-token", "nfp_ nfc_ nfo_ nfu_ nfb_", rf"{_border()}nf[pcoub]_{_WORD}{{36,}}+"),
    _format(
        "vercel-token",
        "vcp_ vci_ vca_ vcr_ vck_ vercel_",
        rf"{_border()}vc[piark]_{_WORD}{{24,}}+",
        rf"vercel_blob_rw_{_WORD}{{10,}}_{_WORD}{{20,}}+",
    ),
    _format("render-key", "rnd_", rf"{starts('rnd_')}{_A_DIGIT}{_WORD}{{28,}}+"),
    _format("scaleway-key", "scw", _alone("SCW", r"(?=[A-Z]{0,16}[0-9])[A-Z0-9]{17}")),
)

DATABASES = (
    _format(
        "databricks-token", "dapi dose dkea", rf"{_border()}(?:dapi|dose|dkea){_HEX}{{32}}(?:-[0-9]{{1,2}})?(?!{_WORD})"
    ),
    _format("planetscale-token", "pscale_", r"pscale_(?:tkn|pw|oauth|otkn)_[A-Za-z0-9_.=-]{32,}+"),
    _format("supabase-key", "sbp_ sb_secret_", rf"sbp_(?:oauth_|v0_)?{_HEX}{{40}}", rf"sb_secret_{SAFE}{{20,}}+"),
    _format(
        "neon-key", "napi_ npg_", rf"{starts('napi_')}{_WORD}{{40,}}+", rf"{starts('npg_')}{_A_DIGIT}{_WORD}{{12,}}+"
    ),
    _format("mongodb-key", "mdb_sa_sk_", rf"mdb_sa_sk_{SAFE}{{30,}}+"),
    _format("pinecone-key", "pcsk_", rf"pcsk_{_WORD}{{4,}}_{_WORD}{{40,}}+"),
    _format("elastic-key", "essu_", r"essu_[A-Za-z0-9+/=]{40,}+"),
    _format("airtable-token", "pat", rf"{_border()}pat{_WORD}{{14}}\.{_HEX}{{64}}"),
)

DEVELOPMENT = (
    _format(
        "gitlab-token",
        "glsoat- glimt- glagent- glft- gloas- glffct- glwt-",
        rf"gl(?:soat|imt|agent|ft|oas|ffct|wt)-{SAFE}{{20,}}+",
    ),
    _format("vault-token", "hvs. hvb. hvr.", rf"{_border()}hv[sbr]\.{SAFE}{{24,}}+"),
    _format("terraform-token", ".atlasv1.", rf"{_border()}{_WORD}{{14}}\.atlasv1\.[A-Za-z0-9_=-]{{60,}}+"),
    _format(
        "doppler-token",
        "dp.",
        rf"{_border()}dp\.(?:pt|st|ct|sa|said|scim|audit)\.(?:[a-z0-9_-]{{1,40}}\.)?"
        rf"{_WORD}{{40,}}+",
    ),
    _format("pulumi-token", "pul-", rf"{starts('pul-')}{_HEX}{{40}}"),
    _format("docker-token", "dckr_pat_ dckr_oat_", rf"dckr_[po]at_{SAFE}{{27,}}+"),
    _format(
        "atlassian-token",
        "atatt3 atctt3 atbb atta atst",
        r"AT[AC]TT3[A-Za-z0-9_=-]{60,}+",
        _alone("ATBB", rf"{_A_DIGIT}{_WORD}{{28,32}}"),
        _alone("ATTA", rf"{_HEX}{{60,64}}"),
    ),
    _format("linear-key", "lin_api_ lin_oauth_ lin_wh_", rf"lin_(?:api|oauth|wh)_{_WORD}{{32,}}+"),
    _format(
        "notion-token",
        "secret_ ntn_",
        rf"{starts('secret_')}{_A_DIGIT}{_WORD}{{43}}(?!{_WORD})",
        rf"{starts('ntn_')}{_WORD}{{40,}}+",
    ),
    _format("postman-key", "pmak- pmat-", rf"PMAK-{_HEX}{{24}}-{_HEX}{{34}}", rf"PMAT-{_WORD}{{26}}"),
    _format(
        "newrelic-key",
        "nrak- nrjs- nrii- nriq- nrra- nral",
        r"NR(?:AK|II|IQ|SP)-[A-Za-z0-9_-]{27,}+",
        rf"NR(?:JS|RA)-{_HEX}{{19,42}}",
        rf"{_border()}{_HEX}{{36,40}}NRAL(?!{_WORD})",
    ),
    _format(
        "grafana-token",
        "glsa_ glc_ eyjrijoi",
        rf"glsa_{_WORD}{{32}}_{_HEX}{{8}}",
        starts("glc_") + r"[A-Za-z0-9+/=]{32,}+",
        starts("eyJrIjoi", _BASE64) + r"[A-Za-z0-9+/]{60,}+={0,2}",
    ),
    _format("sentry-token", "sntrys_ sntryu_ sntryi_", r"sntry[sui]_[A-Za-z0-9+/=_-]{40,}+"),
    _format(
        "tailscale-key", "tskey-", rf"tskey-[a-z]{{2,20}}-{_WORD}{{6,}}-{_WORD}{{16,}}+", rf"tskey-{_WORD}{{16,}}+"
    ),
    _format("age-key", "age-secret-key-", r"AGE-SECRET-KEY-(?:PQ-)?1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58,}+"),
    _format("rubygems-key", "rubygems_", rf"rubygems_{_HEX}{{48}}"),
    _format("crates-token", "cio", _alone("cio", rf"{_A_DIGIT}{_WORD}{{32}}")),
    _format("nuget-key", "oy2", _alone("oy2", r"(?=[a-z]{0,42}[0-9])[a-z0-9]{43}")),
    _format("clojars-token", "clojars_", r"CLOJARS_[a-z0-9]{60}"),
    _format(
        "artifactory-key", "akcp cmvmdgtu", _alone("AKCp", rf"{_WORD}{{66,}}+"), _alone("cmVmdGtu", rf"{_WORD}{{50,}}+")
    ),
    _format("circleci-token", "ccipat_ cciprj_", rf"CCI(?:PAT|PRJ)_{_WORD}{{20,}}_{_HEX}{{40}}"),
    _format("buildkite-token", "bkua_ bkpt_ bkct_ bkaj_", rf"bk(?:ua|pt|ct|aj)_{_HEX}{{40}}"),
    _format("sonar-token", "sqp_ squ_ sqa_", rf"{_border()}sq[pua]_{_HEX}{{40}}"),
    _format("sourcegraph-token", "sgp_", rf"sgp_(?:{_HEX}{{16}}_|local_)?{_HEX}{{40}}"),
    _format("prefect-key", "pnu_ pnb_", rf"{_border()}pn[ub]_{_WORD}{{36}}(?!{_WORD})"),
    _format("dbt-token", "dbtc_ dbtu_", rf"dbt[cu]_{SAFE}{{30,}}+"),
    _format("figma-token", "figd_ figo_ figu_ figor_ figur_", rf"fig(?:d|o|u|or|ur)_{SAFE}{{36,}}+"),
    _format("contentful-token", "cfpat-", rf"CFPAT-{SAFE}{{40,}}+"),
    _format("readme-key", "rdme_", r"rdme_[a-z0-9]{60,}+"),
    _format("wakatime-key", "waka_", rf"waka_{_UUID}"),
    _format(
        "onepassword-token",
        "ops_eyj a3-",
        r"ops_eyJ[A-Za-z0-9_-]{100,}+",
        rf"{_border('A-Za-z0-9-')}A3-[A-Z0-9]{{6}}-[A-Z0-9]{{6,11}}(?:-[A-Z0-9]{{5}}){{3,4}}(?![A-Za-z0-9-])",
    ),
    _format("harness-token", "pat. sat.", rf"{_border()}[ps]at\.{SAFE}{{22}}\.{_HEX}{{24}}\.{_WORD}{{20}}"),
    _format("launchdarkly-key", "sdk-", rf"{_border('A-Za-z0-9-')}sdk-{_UUID}(?![A-Za-z0-9-])"),
)

MESSAGING = (
    _format(
        "discord-token",
        ".",
        rf"{_border('A-Za-z0-9_.-')}[MNO]{SAFE}{{23,27}}\.{SAFE}{{6,7}}\.{SAFE}{{27,45}}(?![A-Za-z0-9_.-])",
    ),
    _format(
        "discord-webhook",
        "/api/webhooks/",
        rf"discord(?:app)?\.com\\?/api\\?/webhooks\\?/[0-9]{{15,22}}\\?/(?P<secret>{SAFE}{{40,}}+)",
    ),
    _format("telegram-token", ":aa", rf"{_border('A-Za-z0-9_')}[0-9]{{8,11}}:AA{SAFE}{{32,34}}(?![A-Za-z0-9_-])"),
    _format("twilio-key", "sk", rf"{_border()}SK{_HEX}{{32}}(?!{_WORD})"),
    _format(
        "mailgun-key",
        "key- -",
        rf"{_border('A-Za-z0-9_-')}(?:pub)?key-{_HEX}{{32}}(?!{_WORD})",
        rf"{_border('A-Za-z0-9-')}{_HEX}{{32}}-{_HEX}{{8}}-{_HEX}{{8}}(?![A-Za-z0-9-])",
    ),
    _format("mailchimp-key", "-us", rf"{_border()}{_HEX}{{32}}-us[0-9]{{1,2}}(?!{_WORD})"),
    _format("brevo-key", "xkeysib- xsmtpsib-", rf"x(?:key|smtp)sib-{_HEX}{{64}}-{_WORD}{{16}}"),
    _format(
        "resend-key", "re_", rf"{starts('re_', 'A-Za-z0-9_')}(?=[A-Za-z_]{{0,32}}[0-9]){_WORD}{{8}}_{_WORD}{{20,}}+"
    ),
    _format(
        "teams-webhook",
        "webhook.office.com outlook.office.com",
        r"(?:webhook|outlook)\.office\.com\\?/webhookb?2?\\?/(?P<secret>[A-Za-z0-9@/\\-]{60,}+)",
    ),
    _format("matrix-token", "syt_", r"syt_[A-Za-z0-9]{1,80}_[A-Za-z]{20}_[A-Za-z0-9]{6}"),
    _format("okta-token", "ssws", rf"SSWS\s{{1,4}}(?P<secret>00{SAFE}{{40}})"),
)

COMMERCE = (
    _format(
        "shopify-token",
        "shpat_ shpca_ shppa_ shpss_ shpua_ shprt_ shptka_",
        rf"shp(?:at|ca|pa|ss|ua|rt|tka)_{_HEX}{{32}}",
    ),
    _format("square-token", "sq0 eaaa", rf"sq0[a-z]{{3}}-{SAFE}{{22,43}}", _alone("EAAA", rf"{_A_DIGIT}{SAFE}{{60}}")),
    _format("facebook-token", "eaa", _alone("EAA", rf"{_A_DIGIT}{_WORD}{{100,}}+")),
    _format("paypal-token", "access_token$", rf"access_token\$(?:production|sandbox)\$[a-z0-9]{{16}}\${_HEX}{{32}}"),
    _format("plaid-token", "access-", rf"access-(?:sandbox|development|production)-{_UUID}"),
    _format("razorpay-key", "rzp_", rf"rzp_(?:live|test)_{_WORD}{{14,}}+"),
    _format("flutterwave-key", "flwseck", rf"FLWSECK(?:_TEST)?-{_WORD}{{12,}}-X"),
    _format("shippo-token", "shippo_", rf"shippo_(?:live|test)_{_HEX}{{40}}"),
    _format("easypost-key", "ezak eztk", _alone("EZAK", rf"{_WORD}{{54}}"), _alone("EZTK", rf"{_WORD}{{54}}")),
    _format("duffel-token", "duffel_", rf"duffel_(?:live|test)_{SAFE}{{40,}}+"),
    _format("hubspot-token", "pat-na pat-eu pat-ap", rf"pat-(?:na|eu|ap)[0-9]-{_UUID}"),
    _format(
        "asana-token", ":", rf"{_border('A-Za-z0-9/')}[0-2]/[0-9]{{13,19}}(?:/[0-9]{{13,19}})?:{_HEX}{{32}}(?!{_WORD})"
    ),
    _format("clickup-token", "pk_", rf"{_border()}pk_[0-9]{{5,12}}_[A-Z0-9]{{32}}(?!{_WORD})"),
    _format("typeform-token", "tfp_", r"tfp_[A-Za-z0-9_.=-]{40,}+"),
    _format("dropbox-token", "sl.", rf"{_border()}sl\.(?:u\.)?{SAFE}{{120,}}+"),
    _format("twitter-token", "aaaaaaaaaaaaaaaaaaaa", r"AAAAAAAAAAAAAAAAAAAA[A-Za-z0-9]{1,20}%[A-Za-z0-9%]{40,}+"),
    _format("segment-token", "sgp_", rf"{_border()}sgp_{_WORD}{{64}}(?!{_WORD})"),
    _format("nostr-key", "nsec1", r"nsec1[qpzry9x8gf2tvdw0s3jn54khce6mua7l]{58}"),
    _format("wallet-key", "xprv", rf"{_border()}[xyz]prv{_WORD}{{100,112}}(?!{_WORD})"),
)

MODELS = (
    _format("nvidia-key", "nvapi-", rf"nvapi-{SAFE}{{40,}}+"),
    _format("langsmith-key", "lsv2_", rf"lsv2_(?:pt|sk)_{_HEX}{{32}}_{_HEX}{{10}}"),
    _format("together-key", "tgp_v1_", rf"tgp_v1_{SAFE}{{40,}}+"),
    _format("fireworks-key", "fw_", rf"{starts('fw_')}{_A_DIGIT}{_WORD}{{22,}}+"),
    _format("cerebras-key", "csk-", rf"{starts('csk-')}{_A_DIGIT}{_WORD}{{40,}}+"),
    _format("jina-key", "jina_", rf"jina_{_HEX}{{32}}{SAFE}{{20,}}+"),
    _format("tavily-key", "tvly-", rf"tvly-(?:dev-|prod-)?{_WORD}{{32}}"),
    _format("elevenlabs-key", "sk_", rf"{starts('sk_')}{_HEX}{{48}}"),
    _format("firecrawl-key", "fc-", rf"{_border('A-Za-z0-9-')}fc-{_HEX}{{32}}(?!{_WORD})"),
    _format("brave-key", "bsa", _alone("BSA", rf"{_A_DIGIT}{SAFE}{{27,28}}")),
    _format("runpod-key", "rpa_", rf"rpa_[A-Z0-9]{{32,}}{_WORD}*+"),
    _format("e2b-key", "e2b_", rf"e2b_{_HEX}{{40}}"),
    _format("openai-session", "sess-", rf"{starts('sess-')}{_A_DIGIT}{_WORD}{{40}}"),
    _format("inngest-key", "signkey-", rf"signkey-(?:prod|test|branch)-{_HEX}{{32,64}}"),
    _format("wandb-key", "wandb_v1_", rf"wandb_v1_{SAFE}{{40,}}+"),
    _format("kaggle-key", "kgat_", rf"KGAT_{_HEX}{{32}}"),
    _format("huggingface-token", "api_org_", r"api_org_[A-Za-z]{34}"),
    _format("voyage-key", "pa-", _alone("pa-", rf"{_A_DIGIT}{_A_CAPITAL}{SAFE}{{43}}")),
    _format("modal-token", "ak- as-", _alone("a[ks]-", rf"{_A_DIGIT}{_A_CAPITAL}{_WORD}{{22}}")),
    _format("zhipu-key", ".", rf"{_border('A-Za-z0-9/')}{_HEX}{{32}}\.{_A_CAPITAL}{_WORD}{{16}}(?!{_WORD})"),
)

SERVICES = (
    _format("snyk-token", "snyk_", rf"snyk_[a-z]{{3}}\.{_HEX}{{8}}\.{SAFE}{{40,}}+"),
    _format("dynatrace-token", "dt0", r"dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    _format("honeycomb-key", "ik_", r"hc[a-z]ik_[a-z0-9]{50,}+"),
    _format("posthog-key", "phx_ phs_", rf"{starts('ph[xs]_')}{_A_DIGIT}{_WORD}{{40,}}+"),
    _format("infracost-key", "ico-", _alone("ico-", rf"{_A_DIGIT}{_A_CAPITAL}{_WORD}{{32}}")),
    _format("scalingo-token", "tk-us-", rf"tk-us-{_A_DIGIT}{SAFE}{{48}}"),
    _format("frameio-token", "fio-u-", rf"fio-u-{SAFE}{{64}}"),
    _format("mapbox-token", "sk.eyj", rf"{starts('sk')}\.eyJ{SAFE}{{40,}}+\.{SAFE}{{20,}}+"),
)

# Recognised by the name before them.
NAMED_FORMATS: tuple[TokenFormat, ...] = (
    _format(
        "azure-key",
        "accountkey= sharedaccesskey= storage_key access_key",
        r"(?:Account|SharedAccess)Key=(?P<secret>[A-Za-z0-9+/]{43,86}={1,2})",
        r"(?i:storage_(?:account_)?(?:access_)?key)[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?P<secret>[A-Za-z0-9+/]{86}==)",
    ),
    _format(
        "cloudflare-token",
        "cfk_ cfut_ cfat_ v1.0- auth-key auth-user-service-key",
        rf"cf(?:k|ut|at)_{_WORD}{{36,}}+",
        rf"v1\.0-{_HEX}{{24}}-{_HEX}{{100,}}+",
        rf"(?i:x-auth-(?:user-service-)?key)[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?(?P<secret>{_HEX}{{37,}}+)",
    ),
    _format(
        "kubernetes-key",
        "client-key-data",
        r"client-key-data[\"']?\s{0,4}:\s{0,4}[\"']?(?P<secret>[A-Za-z0-9+/]{80,}+={0,2})",
    ),
    _format(
        "docker-login",
        "auth",
        r"\"auth\\{0,2}\"\s{0,4}:\s{0,4}\\{0,2}\"(?P<secret>(?=[A-Za-z+/]{0,60}[0-9=])[A-Za-z0-9+/]{16,}+={0,2})",
    ),
    _format(
        "wireguard-key",
        "privatekey presharedkey",
        r"(?:PrivateKey|PresharedKey)\s{0,4}=\s{0,4}(?P<secret>[A-Za-z0-9+/]{43}=)",
    ),
    _format(
        "putty-key",
        "private-lines",
        r"Private-Lines:\s{0,4}[0-9]{1,4}(?P<secret>(?:(?:\s|\\+[nr]){1,4}+[A-Za-z0-9+/=]{16,}+)++)",
    ),
    # Only in texts that name a key type: these names are short. `p` and `q` give an RSA key away as well.
    _format(
        "jwk-key", "kty", rf"\"(?:d|k|p|q|dp|dq|qi)\\{{0,4}}\"\s{{0,4}}:\s{{0,4}}\\{{0,4}}\"(?P<secret>{SAFE}{{32,}}+)"
    ),
    _format(
        "aws-session-token",
        "session_token sessiontoken security_token",
        r"(?i:session_?token|aws_security_token)\\{0,4}[\"']?\s{0,4}[:=]\s{0,4}\\{0,4}[\"']?"
        r"(?P<secret>[A-Za-z0-9+/]{100,}+={0,2})",
    ),
    _format(
        "npm-token",
        "_authtoken _auth=",
        r"_auth(?:Token)?\s{0,4}=\s{0,4}[\"']?(?P<secret>(?![$<{])[A-Za-z0-9+/=_.-]{12,}+)",
    ),
    _format(
        "curl-password",
        "curl",
        r"curl\s[^\n\r]{0,300}?\s(?:-u|--user)[\s=]{0,2}[\"']?[^\s:\"'$<{]{1,64}:(?P<secret>(?![$<{])[^\s\"'\\]{4,}+)",
    ),
)

TOKEN_FORMATS: tuple[TokenFormat, ...] = (*CLOUDS, *DATABASES, *DEVELOPMENT, *MESSAGING, *COMMERCE, *MODELS, *SERVICES)
