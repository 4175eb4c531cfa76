/* A validator of PostgreSQL 18 that knows one token. */
#include "postgres.h"
#include "fmgr.h"
#include "libpq/oauth.h"

PG_MODULE_MAGIC;

static bool
validate(const ValidatorModuleState *state, const char *token, const char *role, ValidatorModuleResult *result)
{
	result->authorized = strcmp(token, TOKEN) == 0;
	result->authn_id = result->authorized ? pstrdup(role) : NULL;
	return true;
}

static const OAuthValidatorCallbacks callbacks = {PG_OAUTH_VALIDATOR_MAGIC, .validate_cb = validate};

const OAuthValidatorCallbacks *
_PG_oauth_validator_module_init(void)
{
	return &callbacks;
}
