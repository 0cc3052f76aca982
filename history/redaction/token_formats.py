r"""Formats of API keys and tokens, by vendor: the literals that give them away, and patterns. No Django.

Each row of a table has a name, needles and a pattern, with two spaces between them; indented rows are further patterns.
Needles are in lower case: without one of them in a text no pattern can match. `«safe»` and the like are `MACROS`.

Each pattern begins with a literal or a short bounded class, and each repetition is bounded or possessive, so searching
takes linear time. Formats of letters and digits alone have borders on both sides (`«alone X»…«end»`): inside of base64
(pictures, hashes) any short prefix occurs by chance.
"""

import re
from collections.abc import Iterator

SAFE = "[A-Za-z0-9_-]"
MACROS = {
    "safe": SAFE,
    "hex": "[a-f0-9]",
    "word": "[A-Za-z0-9]",
    "uuid": "[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}",
    # A random token holds a digit early on; an identifier of words does not.
    "digit": "(?=[A-Za-z_-]{0,60}[0-9])",
    "capital": "(?=[a-z0-9_-]{0,60}[A-Z])",
    "end": "(?![A-Za-z0-9+/=_-])",
}
_MACRO = re.compile(r"«(\w+) ?([^ »]*) ?([^»]*)»")


def _expand(macro: re.Match[str]) -> str:
    match macro.groups():
        case "starts", literal, before:
            return _starts(literal, before or "A-Za-z0-9")
        case "alone", literal, _:
            return _starts(literal, "A-Za-z0-9+/_-")
        case "border", before, _:  # where a token may begin that has no literal: `_starts` before its first character
            before = before or "A-Za-z0-9"
            return rf"(?:(?<![{before}])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{{2}})|(?<=\\u[0-9A-Fa-f]{{4}}))"
    return MACROS[macro[1]]


def _starts(literal: str, before: str) -> str:
    """The literal, where no character of `before` precedes it, or an escape sequence does."""
    return (
        rf"{literal}(?:(?<![{before}]{literal})|(?<=\\[nrtbf]{literal})"
        rf"|(?<=%[0-9A-Fa-f]{{2}}{literal})|(?<=\\u[0-9A-Fa-f]{{4}}{literal}))"
    )


def read_formats(table: str) -> Iterator[tuple[str, str, list[str]]]:
    """Name, needles and patterns of each row with its indented rows."""
    for row in re.findall(r"^[^ #\n].*(?:\n  .*)*", table, re.MULTILINE):
        name, needles, *patterns = row.replace("\n", "").split("  ")
        yield name, needles, [_MACRO.sub(_expand, pattern) for pattern in patterns]


# Each match holds at least 16 letters, digits, hyphens or underscores in a row.
TOKENS = r"""
parley-key  parley_  parley_[a-z0-9]{4,16}_[A-Za-z0-9]{32,}+
anthropic-key  sk-ant-  sk-ant-«safe»{20,}+
openrouter-key  sk-or-  sk-or-«safe»{20,}+
openai-key  sk-  «starts sk-»(?!ssh-|ecdsa-)«digit»«safe»{20,}+
google-key  aiza  «starts AIza A-Za-z0-9+/»«safe»{35,}+
google-oauth  ya29. gocspx-  ya29\.«safe»{20,}+
  GOCSPX-«safe»{20,}+
github-token  ghp_ gho_ ghu_ ghs_ ghr_ github_pat_  gh[pousr]_[A-Za-z0-9]{30,}+
  github_pat_[A-Za-z0-9_]{40,}+
gitlab-token  glpat- gldt- glrt- glptt- glcbt-  gl(?:pat|dt|rt|ptt|cbt)-«safe»{20,}+(?:\.«safe»++)*+
aws-access-key  akia asia  «starts AKIA»[A-Z2-7]{16}(?![A-Za-z0-9])
  «starts ASIA»[A-Z2-7]{16}(?![A-Za-z0-9])
slack-token  xox xapp-  xox[abceoprs]-[A-Za-z0-9-]{12,}+
  xapp-[A-Za-z0-9-]{12,}+
slack-webhook  hooks.slack.com
  hooks\.slack\.com\\?/(?:services|workflows|triggers)(?P<secret>(?:\\?/«safe»{8,}+){2,6})
stripe-key  k_live_ k_test_ whsec_  [srp]k_(?:live|test)_[A-Za-z0-9]{16,}+
  whsec_[A-Za-z0-9+/=]{24,}+
huggingface-token  hf_  «starts hf_»[A-Za-z0-9]{30,}+
groq-key  gsk_  gsk_[A-Za-z0-9]{32,}+
xai-key  xai-  «starts xai-»[A-Za-z0-9]{40,}+
perplexity-key  pplx-  pplx-[A-Za-z0-9]{32,}+
replicate-token  r8_  «starts r8_»[A-Za-z0-9]{30,}+
npm-token  npm_  npm_[A-Za-z0-9]{36,}+
pypi-token  pypi-  pypi-«safe»{32,}+
sendgrid-key  sg.  «starts SG\.»«safe»{16,64}+\.«safe»{32,}+
digitalocean-token  _v1_  do[por]_v1_[a-f0-9]{64}
jwt  eyj  «starts eyJ A-Za-z0-9_-»«safe»{13,}+\.«safe»*+\.«safe»{4,}+(?:\.«safe»++){0,2}+
"""

# Searched only around long words that hold a digit or change their case again and again.
FORMATS = r"""
# Clouds
azure-key  +ast acdb +aba +asb +aeh aiot +acr azfu azse azdo jqqj9 q~
  [A-Za-z0-9+/]{76}(?:\+ASt|ACDb|\+ABa)[A-Za-z0-9+/]{6}==
  [A-Za-z0-9+/]{33,42}(?:\+ASb|\+AEh|AIoT|\+ACR|AzFu|AzSe)[A-Za-z0-9+/]{5,8}={0,2}(?![A-Za-z0-9+/=])
  «border»«word»{76}AZDO«word»{4}(?!«word»)
  «border»«word»{52}JQQJ9[A-Za-z0-9]«word»{26}(?!«word»)
  «border A-Za-z0-9_~.-»[A-Za-z0-9_~.-]{3}[78]Q~[A-Za-z0-9_~.-]{31,37}
aws-bedrock-key  absk bedrock-api-key-  «alone ABSK»[A-Za-z0-9+/]{100,}+={0,2}«end»
  bedrock-api-key-[A-Za-z0-9+/=]{40,}+
amazon-key  amzn.mws. amzn1.oa2-cs  amzn\.mws\.«uuid»
  amzn1\.oa2-cs\.v1\.«hex»{64}
alibaba-key  ltai  «alone LTAI»«digit»«word»{12,26}«end»
tencent-key  akid  «alone AKID»«digit»«word»{28,40}«end»
google-oauth  1//0 aq.  «border A-Za-z0-9/»1//0«safe»{40,}+
  «starts AQ\.»«safe»{40,}+
  «alone AAAA»«safe»{7}:«safe»{130,}+«end»
fly-token  fo1_ fm1_ fm1r_ fm1a_ fm2_  «starts fo1_»«safe»{40,}+
  fm(?:1|1r|1a|2)_[A-Za-z0-9+/=_-]{60,}+
heroku-key  hrku-  HRKU-«safe»{36,}+
netlify-token  nfp_ nfc_ nfo_ nfu_ nfb_  «border»nf[pcoub]_«word»{36,}+
vercel-token  vcp_ vci_ vca_ vcr_ vck_ vercel_  «border»vc[piark]_«word»{24,}+
  vercel_blob_rw_«word»{10,}_«word»{20,}+
render-key  rnd_  «starts rnd_»«digit»«word»{28,}+
scaleway-key  scw  «alone SCW»(?=[A-Z]{0,16}[0-9])[A-Z0-9]{17}«end»
# Databases
databricks-token  dapi dose dkea  «border»(?:dapi|dose|dkea)«hex»{32}(?:-[0-9]{1,2})?(?!«word»)
planetscale-token  pscale_  pscale_(?:tkn|pw|oauth|otkn)_[A-Za-z0-9_.=-]{32,}+
supabase-key  sbp_ sb_secret_  sbp_(?:oauth_|v0_)?«hex»{40}
  sb_secret_«safe»{20,}+
neon-key  napi_ npg_  «starts napi_»«word»{40,}+
  «starts npg_»«digit»«word»{12,}+
mongodb-key  mdb_sa_sk_  mdb_sa_sk_«safe»{30,}+
pinecone-key  pcsk_  pcsk_«word»{4,}_«word»{40,}+
elastic-key  essu_  essu_[A-Za-z0-9+/=]{40,}+
airtable-token  pat  «border»pat«word»{14}\.«hex»{64}
# Development
gitlab-token  glsoat- glimt- glagent- glft- gloas- glffct- glwt-  gl(?:soat|imt|agent|ft|oas|ffct|wt)-«safe»{20,}+
vault-token  hvs. hvb. hvr.  «border»hv[sbr]\.«safe»{24,}+
terraform-token  .atlasv1.  «border»«word»{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}+
doppler-token  dp.  «border»dp\.(?:pt|st|ct|sa|said|scim|audit)\.(?:[a-z0-9_-]{1,40}\.)?«word»{40,}+
pulumi-token  pul-  «starts pul-»«hex»{40}
docker-token  dckr_pat_ dckr_oat_  dckr_[po]at_«safe»{27,}+
atlassian-token  atatt3 atctt3 atbb atta atst  AT[AC]TT3[A-Za-z0-9_=-]{60,}+
  «alone ATBB»«digit»«word»{28,32}«end»
  «alone ATTA»«hex»{60,64}«end»
linear-key  lin_api_ lin_oauth_ lin_wh_  lin_(?:api|oauth|wh)_«word»{32,}+
notion-token  secret_ ntn_  «starts secret_»«digit»«word»{43}(?!«word»)
  «starts ntn_»«word»{40,}+
postman-key  pmak- pmat-  PMAK-«hex»{24}-«hex»{34}
  PMAT-«word»{26}
newrelic-key  nrak- nrjs- nrii- nriq- nrra- nral  NR(?:AK|II|IQ|SP)-[A-Za-z0-9_-]{27,}+
  NR(?:JS|RA)-«hex»{19,42}
  «border»«hex»{36,40}NRAL(?!«word»)
grafana-token  glsa_ glc_ eyjrijoi  glsa_«word»{32}_«hex»{8}
  «starts glc_»[A-Za-z0-9+/=]{32,}+
  «starts eyJrIjoi A-Za-z0-9+/=_-»[A-Za-z0-9+/]{60,}+={0,2}
sentry-token  sntrys_ sntryu_ sntryi_  sntry[sui]_[A-Za-z0-9+/=_-]{40,}+
tailscale-key  tskey-  tskey-[a-z]{2,20}-«word»{6,}-«word»{16,}+
  tskey-«word»{16,}+
age-key  age-secret-key-  AGE-SECRET-KEY-(?:PQ-)?1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58,}+
rubygems-key  rubygems_  rubygems_«hex»{48}
crates-token  cio  «alone cio»«digit»«word»{32}«end»
nuget-key  oy2  «alone oy2»(?=[a-z]{0,42}[0-9])[a-z0-9]{43}«end»
clojars-token  clojars_  CLOJARS_[a-z0-9]{60}
artifactory-key  akcp cmvmdgtu  «alone AKCp»«word»{66,}+«end»
  «alone cmVmdGtu»«word»{50,}+«end»
circleci-token  ccipat_ cciprj_  CCI(?:PAT|PRJ)_«word»{20,}_«hex»{40}
buildkite-token  bkua_ bkpt_ bkct_ bkaj_  bk(?:ua|pt|ct|aj)_«hex»{40}
sonar-token  sqp_ squ_ sqa_  «border»sq[pua]_«hex»{40}
sourcegraph-token  sgp_  sgp_(?:«hex»{16}_|local_)?«hex»{40}
prefect-key  pnu_ pnb_  «border»pn[ub]_«word»{36}(?!«word»)
dbt-token  dbtc_ dbtu_  dbt[cu]_«safe»{30,}+
figma-token  figd_ figo_ figu_ figor_ figur_  fig(?:d|o|u|or|ur)_«safe»{36,}+
contentful-token  cfpat-  CFPAT-«safe»{40,}+
readme-key  rdme_  rdme_[a-z0-9]{60,}+
wakatime-key  waka_  waka_«uuid»
onepassword-token  ops_eyj a3-  ops_eyJ[A-Za-z0-9_-]{100,}+
  «border A-Za-z0-9-»A3-[A-Z0-9]{6}-[A-Z0-9]{6,11}(?:-[A-Z0-9]{5}){3,4}(?![A-Za-z0-9-])
harness-token  pat. sat.  «border»[ps]at\.«safe»{22}\.«hex»{24}\.«word»{20}
launchdarkly-key  sdk-  «border A-Za-z0-9-»sdk-«uuid»(?![A-Za-z0-9-])
# Messaging
discord-token  .  «border A-Za-z0-9_.-»[MNO]«safe»{23,27}\.«safe»{6,7}\.«safe»{27,45}(?![A-Za-z0-9_.-])
discord-webhook  /api/webhooks/  discord(?:app)?\.com\\?/api\\?/webhooks\\?/[0-9]{15,22}\\?/(?P<secret>«safe»{40,}+)
telegram-token  :aa  «border A-Za-z0-9_»[0-9]{8,11}:AA«safe»{32,34}(?![A-Za-z0-9_-])
twilio-key  sk  «border»SK«hex»{32}(?!«word»)
mailgun-key  key- -  «border A-Za-z0-9_-»(?:pub)?key-«hex»{32}(?!«word»)
  «border A-Za-z0-9-»«hex»{32}-«hex»{8}-«hex»{8}(?![A-Za-z0-9-])
mailchimp-key  -us  «border»«hex»{32}-us[0-9]{1,2}(?!«word»)
brevo-key  xkeysib- xsmtpsib-  x(?:key|smtp)sib-«hex»{64}-«word»{16}
resend-key  re_  «starts re_ A-Za-z0-9_»(?=[A-Za-z_]{0,32}[0-9])«word»{8}_«word»{20,}+
teams-webhook  webhook.office.com outlook.office.com
  (?:webhook|outlook)\.office\.com\\?/webhookb?2?\\?/(?P<secret>[A-Za-z0-9@/\\-]{60,}+)
matrix-token  syt_  syt_[A-Za-z0-9]{1,80}_[A-Za-z]{20}_[A-Za-z0-9]{6}
okta-token  ssws  SSWS\s{1,4}(?P<secret>00«safe»{40})
# Commerce
shopify-token  shpat_ shpca_ shppa_ shpss_ shpua_ shprt_ shptka_  shp(?:at|ca|pa|ss|ua|rt|tka)_«hex»{32}
square-token  sq0 eaaa  sq0[a-z]{3}-«safe»{22,43}
  «alone EAAA»«digit»«safe»{60}«end»
facebook-token  eaa  «alone EAA»«digit»«word»{100,}+«end»
paypal-token  access_token$  access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$«hex»{32}
plaid-token  access-  access-(?:sandbox|development|production)-«uuid»
razorpay-key  rzp_  rzp_(?:live|test)_«word»{14,}+
flutterwave-key  flwseck  FLWSECK(?:_TEST)?-«word»{12,}-X
shippo-token  shippo_  shippo_(?:live|test)_«hex»{40}
easypost-key  ezak eztk  «alone EZAK»«word»{54}«end»
  «alone EZTK»«word»{54}«end»
duffel-token  duffel_  duffel_(?:live|test)_«safe»{40,}+
hubspot-token  pat-na pat-eu pat-ap  pat-(?:na|eu|ap)[0-9]-«uuid»
asana-token  :  «border A-Za-z0-9/»[0-2]/[0-9]{13,19}(?:/[0-9]{13,19})?:«hex»{32}(?!«word»)
clickup-token  pk_  «border»pk_[0-9]{5,12}_[A-Z0-9]{32}(?!«word»)
typeform-token  tfp_  tfp_[A-Za-z0-9_.=-]{40,}+
dropbox-token  sl.  «border»sl\.(?:u\.)?«safe»{120,}+
twitter-token  aaaaaaaaaaaaaaaaaaaa  AAAAAAAAAAAAAAAAAAAA[A-Za-z0-9]{1,20}%[A-Za-z0-9%]{40,}+
segment-token  sgp_  «border»sgp_«word»{64}(?!«word»)
nostr-key  nsec1  nsec1[qpzry9x8gf2tvdw0s3jn54khce6mua7l]{58}
wallet-key  xprv  «border»[xyz]prv«word»{100,112}(?!«word»)
# Models
nvidia-key  nvapi-  nvapi-«safe»{40,}+
langsmith-key  lsv2_  lsv2_(?:pt|sk)_«hex»{32}_«hex»{10}
together-key  tgp_v1_  tgp_v1_«safe»{40,}+
fireworks-key  fw_  «starts fw_»«digit»«word»{22,}+
cerebras-key  csk-  «starts csk-»«digit»«word»{40,}+
jina-key  jina_  jina_«hex»{32}«safe»{20,}+
tavily-key  tvly-  tvly-(?:dev-|prod-)?«word»{32}
elevenlabs-key  sk_  «starts sk_»«hex»{48}
firecrawl-key  fc-  «border A-Za-z0-9-»fc-«hex»{32}(?!«word»)
brave-key  bsa  «alone BSA»«digit»«safe»{27,28}«end»
runpod-key  rpa_  rpa_[A-Z0-9]{32,}«word»*+
e2b-key  e2b_  e2b_«hex»{40}
openai-session  sess-  «starts sess-»«digit»«word»{40}
inngest-key  signkey-  signkey-(?:prod|test|branch)-«hex»{32,64}
wandb-key  wandb_v1_  wandb_v1_«safe»{40,}+
kaggle-key  kgat_  KGAT_«hex»{32}
huggingface-token  api_org_  api_org_[A-Za-z]{34}
voyage-key  pa-  «alone pa-»«digit»«capital»«safe»{43}«end»
modal-token  ak- as-  «alone a[ks]-»«digit»«capital»«word»{22}«end»
zhipu-key  .  «border A-Za-z0-9/»«hex»{32}\.«capital»«word»{16}(?!«word»)
# Services
snyk-token  snyk_  snyk_[a-z]{3}\.«hex»{8}\.«safe»{40,}+
dynatrace-token  dt0  dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}
honeycomb-key  ik_  hc[a-z]ik_[a-z0-9]{50,}+
posthog-key  phx_ phs_  «starts ph[xs]_»«digit»«word»{40,}+
infracost-key  ico-  «alone ico-»«digit»«capital»«word»{32}«end»
scalingo-token  tk-us-  tk-us-«digit»«safe»{48}
frameio-token  fio-u-  fio-u-«safe»{64}
mapbox-token  sk.eyj  «starts sk»\.eyJ«safe»{40,}+\.«safe»{20,}+
"""

# Recognised by the name before them.
NAMED_FORMATS = r"""
azure-key  accountkey= sharedaccesskey= storage_key access_key
  (?:Account|SharedAccess)Key=(?P<secret>[A-Za-z0-9+/]{43,86}={1,2})
  (?i:storage_(?:account_)?(?:access_)?key)["']?\s{0,4}[:=]\s{0,4}["']?(?P<secret>[A-Za-z0-9+/]{86}==)
cloudflare-token  cfk_ cfut_ cfat_ v1.0- auth-key auth-user-service-key  cf(?:k|ut|at)_«word»{36,}+
  v1\.0-«hex»{24}-«hex»{100,}+
  (?i:x-auth-(?:user-service-)?key)["']?\s{0,4}[:=]\s{0,4}["']?(?P<secret>«hex»{37,}+)
kubernetes-key  client-key-data  client-key-data["']?\s{0,4}:\s{0,4}["']?(?P<secret>[A-Za-z0-9+/]{80,}+={0,2})
docker-login  auth
  "auth\\{0,2}"\s{0,4}:\s{0,4}\\{0,2}"(?P<secret>(?=[A-Za-z+/]{0,60}[0-9=])[A-Za-z0-9+/]{16,}+={0,2})
wireguard-key  privatekey presharedkey  (?:PrivateKey|PresharedKey)\s{0,4}=\s{0,4}(?P<secret>[A-Za-z0-9+/]{43}=)
putty-key  private-lines  Private-Lines:\s{0,4}[0-9]{1,4}(?P<secret>(?:(?:\s|\\+[nr]){1,4}+[A-Za-z0-9+/=]{16,}+)++)
jwk-key  kty  "(?:d|k|p|q|dp|dq|qi)\\{0,4}"\s{0,4}:\s{0,4}\\{0,4}"(?P<secret>«safe»{32,}+)
aws-session-token  session_token sessiontoken security_token
  (?i:session_?token|aws_security_token)\\{0,4}["']?\s{0,4}[:=]\s{0,4}\\{0,4}["']?(?P<secret>[A-Za-z0-9+/]{100,}+={0,2})
npm-token  _authtoken _auth=  _auth(?:Token)?\s{0,4}=\s{0,4}["']?(?P<secret>(?![$<{])[A-Za-z0-9+/=_.-]{12,}+)
curl-password  curl
  curl\s[^\n\r]{0,300}?\s(?:-u|--user)[\s=]{0,2}["']?[^\s:"'$<{]{1,64}:(?P<secret>(?![$<{])[^\s"'\\]{4,}+)
"""
