"""Names and values of hosts that are no secrets, though some look like one: variables of environments, facts, options, settings."""

from __future__ import annotations

# Of shells, desktops, SSH, sudo, CI, containers, languages and databases.
ENVIRONMENT: dict[str, str] = {
    "PWD": "/srv/shop/releases/2026-11", "OLDPWD": "/home/deploy", "INIT_CWD": "/home/deploy/app", "HOME": "/home/deploy",
    "PATH": "/usr/local/bin:/usr/bin:/bin", "SHELL": "/bin/bash", "USER": "deploy", "LOGNAME": "deploy", "TERM": "xterm-256color",
    "LANG": "C.UTF-8", "LC_ALL": "en_GB.UTF-8", "TZ": "Europe/Zurich", "SHLVL": "2", "HISTSIZE": "1000", "HISTCONTROL": "ignoredups",
    "MAIL": "/var/mail/deploy", "EDITOR": "vim", "PAGER": "less", "LESSOPEN": "| /usr/bin/lesspipe %s", "LS_COLORS": "di=01;34:ln=01;36",
    "DISPLAY": ":0", "XAUTHORITY": "/run/user/1000/gdm/Xauthority", "XDG_SESSION_ID": "12", "XDG_RUNTIME_DIR": "/run/user/1000",
    "XDG_SESSION_TYPE": "wayland", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1000/bus", "SSH_AUTH_SOCK": "/tmp/ssh-x/agent.4711",
    "SSH_AGENT_PID": "4711", "SSH_CONNECTION": "10.0.0.5 52144 10.0.0.9 22", "SSH_CLIENT": "10.0.0.5 52144 22", "SSH_TTY": "/dev/pts/3",
    "SSH_ASKPASS": "/usr/libexec/openssh/ssh-askpass", "SUDO_ASKPASS": "/usr/bin/ksshaskpass", "GIT_ASKPASS": "/usr/bin/git-gui--askpass",
    "SSH_ASKPASS_REQUIRE": "prefer", "SUDO_USER": "deploy", "SUDO_UID": "1000", "SUDO_COMMAND": "/usr/bin/make install",
    "GPG_TTY": "/dev/pts/3",
    "KRB5CCNAME": "FILE:/tmp/krb5cc_1000", "KRB5_KTNAME": "/etc/krb5.keytab", "INVOCATION_ID": "8f3c0f6f2f2b4f0c9a7d9f0b1c2d3e4f",
    "JOURNAL_STREAM": "8:123456", "CREDENTIALS_DIRECTORY": "/run/credentials/x.service", "WINDOWID": "48234499", "COLORTERM": "truecolor",
    "container": "podman", "HOSTNAME": "db1.example.org", "VIRTUAL_ENV": "/srv/venv", "PYTHONPATH": "/srv/lib", "GOPATH": "/home/deploy/go",
    "JAVA_HOME": "/usr/lib/jvm/java-21", "NVM_DIR": "/home/deploy/.nvm", "npm_config_cache": "/home/deploy/.npm", "CI": "true",
    "CI_PIPELINE_ID": "99812", "GITHUB_WORKSPACE": "/home/runner/work/a/a", "GITHUB_RUN_ID": "8123456789", "RUNNER_TEMP": "/home/runner/_t",
    "BUILD_NUMBER": "231", "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_PORT": "tcp://10.96.0.1:443",
    "PGDATA": "/var/lib/pgsql/18/data",
    "PGHOST": "/run/postgresql", "PGUSER": "postgres", "PGDATABASE": "shop", "PGPASSFILE": "/home/deploy/.pgpass", "PGSSLMODE": "require",
    "ORACLE_HOME": "/u01/app/oracle/product/19c", "ORACLE_SID": "ORCL", "TNS_ADMIN": "/u01/app/network", "DB2INSTANCE": "db2inst1",
    "INFORMIXDIR": "/opt/informix", "INFORMIXSERVER": "ol_informix", "AWS_REGION": "eu-central-1", "AWS_PROFILE": "prod",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/secrets/eks.amazonaws.com/serviceaccount/token",
    "VAULT_ADDR": "https://vault.example.org:8200",
    "VAULT_SECRET": "/run/secrets/vault", "DB_PASSWORD": "/run/secrets/db_password", "REGISTRY_TOKEN": "~/.config/registry/token.json",
    "BW_PASSWORD": "./secrets/bw.txt", "ANSIBLE_VAULT_PASSWORD_FILE": "/home/deploy/.vault", "ANSIBLE_ASK_PASS": "False",
    "MAX_TOKEN": "4096", "OPENAI_MAX_TOKENS": "4096", "MIN_PASSWORD": "12", "LOGIN_PASS": "3", "SESSION_TOKEN": "7200", "TOKEN": "30s",
    "REQUIRE_PASSWORD": "required", "ENABLE_PASSWORD": "yes", "HAS_SECRET": "false", "USE_PASSWORD": "optional",
    "EDIT_PWD": "C:\\Users\\me\\src",
    "WINPWD": "D:/work", "BUILD_PWD": "/build", "LASTPWD": "/var/tmp", "APP_PASS": "2026-11-24", "X_SECRET": "none", "Y_TOKEN": "1.25.0",
    "ROOT_PASSWORD": "root", "ADMIN_PASS": "admin", "MASKED_PASSWORD": "********",
}  # fmt: skip

# Of applications, inventories and cloud tools: options and settings as variables of hosts.
VARIABLES: dict[str, object] = {
    "max_token": 4096, "max_new_token": "2048", "min_password": 12, "num_token": 100_000, "token_ttl": 3600, "pwd": "/opt/app",
    "work_pwd": "relative/folder/site.conf", "ansible_password_prompt": "Password:", "update_password": "on_create", "ask_pass": False,
    "ansible_become_ask_pass": "no", "no_log_secret": True, "generate_password": "always", "password": "{{ vault_password }}",
    "user_password": "!", "shadow_password": "*", "lock_password": "!!", "linux_passwd": "x", "fstab_pass": 2, "dump_pass": "0",
    "mount_pass": 1, "ssl_private_key": "/etc/ssl/private/site.pem", "tls_private_key": "certs/site.key", "api_key": "~/.config/api.key",
    "ansible_ssh_private_key": "/home/deploy/.ssh/id_ed25519", "secret": "disabled", "vault_token": "unlimited", "page_token": 17,
    "retry_token": "10m", "quota_token": "500 MB", "rate_token": "12.5%", "lease_token": "2026-11-24T10:00:00Z", "addr_token": "10.0.0.1",
    "phone_pass": "+41 44 123 45 67", "state_password": "present", "absent_token": "absent", "empty_password": "", "null_secret": None,
    "default_password": "default", "two_pass": "2-3", "passwords": "site", "tokens": ["a", "b"], "secrets": {"count": 3},
    "hidden_password": "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER", "backup_secret": "//server/share/x", "unc_pwd": "\\\\server\\share",
}  # fmt: skip
