"""leadline ansible: makes runs of Ansible record themselves, and runs a playbook."""

from __future__ import annotations

import os
from pathlib import Path

import click

from leadline.cli import SETTINGS
from leadline.errors import LeadlineError


@click.group(
    "ansible",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  eval "$(leadline ansible env)"
  leadline ansible env --ini >> ~/.ansible.cfg
  leadline ansible run site.yml -i hosts --check --diff
  leadline book results last""",
)
def command() -> None:
    """Record Ansible runs, and run playbooks.

    A callback plugin of one file records the run. Ansible loads it in its own Python, where leadline need not be installed. Works with
    ansible-core 2.17 to 2.21.
    """


@command.command("env", epilog='\b\nExamples:\n  eval "$(leadline ansible env)"\n  leadline ansible env --ini >> ~/.ansible.cfg')
@click.option("--ini", is_flag=True, help="Print lines for ansible.cfg instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the variables, or the settings of --ini, as JSON.")
def env(ini: bool, as_json: bool) -> None:
    """Print the settings that record every Ansible run on this host.

    Copies the callback plugin to a directory whose path stays the same when leadline is upgraded. The plugin appends events to a file
    in the logbook; LEADLINE_BOOK=off turns it off. Ad-hoc runs (`ansible`) load callback plugins only if ANSIBLE_LOAD_CALLBACK_PLUGINS
    is set.
    """
    import shlex

    from leadline.book.ansible.installed import DEFAULT_PATHS, PLUGIN_PATHS, install
    from leadline.book.place import VARIABLE, find_place
    from leadline.output import to_json

    at = install()
    place = find_place()
    if ini:
        paths = f"~/.ansible/plugins/callback:/usr/share/ansible/plugins/callback:{at}"
        settings = {"callback_plugins": paths, "bin_ansible_callbacks": "True"}
        lines = "".join(f"\n{name} = {value}" for name, value in settings.items())
        click.echo(to_json({"defaults": settings}) if as_json else f"[defaults]{lines}")
        click.echo("put these lines under [defaults] of ansible.cfg; if it has callback_plugins, add the directory to it", err=True)
        return
    more = {"ANSIBLE_LOAD_CALLBACK_PLUGINS": "1"}
    if place is not None and os.environ.get(VARIABLE):
        more[VARIABLE] = place.variable
    if as_json:
        click.echo(to_json({PLUGIN_PATHS: f"{os.environ.get(PLUGIN_PATHS) or DEFAULT_PATHS}:{at}"} | more))
    else:
        click.echo(f'export {PLUGIN_PATHS}="${{{PLUGIN_PATHS}:-{DEFAULT_PATHS}}}:"{shlex.quote(str(at))}')
        for name, value in more.items():
            click.echo(f"export {name}={shlex.quote(value)}")
    if place is None:
        click.echo(f"the book is off ({VARIABLE}=off): nothing is recorded", err=True)


def _secrets_of(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """NAME=FILE, each with what the file holds."""
    from leadline.book.ansible.plugin.leadline_book import SHORTEST_SECRET

    out = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not equals:
            raise LeadlineError("usage", f"{option} takes NAME=FILE", where=pair)
        out[name] = _text_of(path)
        if option == "--secret" and len(out[name]) < SHORTEST_SECRET:
            detail = "It could not be hidden in the output."
            raise LeadlineError("usage", f"the secret is shorter than {SHORTEST_SECRET} characters", detail=detail, where=pair)
    return out


def _text_of(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\n")
    except UnicodeDecodeError as e:
        raise LeadlineError("invalid", "the file is not text", where=path) from e


@command.command(
    "run",
    epilog="\b\nExamples:\n  leadline ansible run site.yml -i hosts --check --diff\n  leadline ansible run site.yml -- -vv",
)
@click.argument("playbook", type=click.Path(exists=True, dir_okay=False))
@click.argument("more", nargs=-1, type=click.UNPROCESSED, metavar="[-- MORE...]")
@click.option("-i", "--inventory", multiple=True, type=click.Path(exists=True), help="Inventory: a file or directory; may be repeated.")
@click.option("-l", "--limit", default="", metavar="HOSTS", help="Only these hosts.")
@click.option("-t", "--tags", default="", metavar="TAG[,TAG...]", help="Only tasks with these tags.")
@click.option("--skip-tags", default="", metavar="TAG[,TAG...]", help="No tasks with these tags.")
@click.option("--check", is_flag=True, help="Change nothing; report what would change.")
@click.option("--diff", is_flag=True, help="Show changes of files.")
@click.option("--set", "values", multiple=True, metavar="NAME=VALUE", help="A variable. The value is text, and is never evaluated.")
@click.option("--secret", "secrets", multiple=True, metavar="NAME=FILE", help="A variable whose value is in a file; it is not recorded.")
@click.option("--vault", "vaults", multiple=True, metavar="ID=FILE", help="The password of a vault. Most vaults have the id `default`.")
@click.option("--become", is_flag=True, help="Become root on the hosts.")
@click.option("--become-password", type=click.Path(exists=True), metavar="FILE", help="The password for --become.")
@click.option("--connection-password", type=click.Path(exists=True), metavar="FILE", help="The password to log in with.")
@click.option("--private-key", type=click.Path(exists=True), metavar="FILE", help="The SSH key to log in with.")
@click.option("--user", default="", metavar="NAME", help="The user to log in as.")
@click.option("--forks", type=int, metavar="N", help="Number of hosts to work on in parallel.")
@click.option("--name", default="", metavar="NAME", help="Name of the run.  [default: that of the playbook]")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label to find it by; may be given more than once.")
@click.option("--json", "as_json", is_flag=True, help="Print errors as JSON. What the playbook prints stays as it is.")
def run(
    playbook: str, more: tuple[str, ...], inventory: tuple[str, ...], limit: str, tags: str, skip_tags: str, check: bool, diff: bool,
    values: tuple[str, ...], secrets: tuple[str, ...], vaults: tuple[str, ...], become: bool, become_password: str | None,
    connection_password: str | None, private_key: str | None, user: str, forks: int | None, name: str, labels: tuple[str, ...],
    as_json: bool,
) -> int:  # fmt: skip
    """Run a playbook and record it: output, tasks and results in one run.

    Secrets are given to Ansible as files in memory, and taken out of all that is stored. MORE goes to ansible-playbook as it is. The
    exit code is that of ansible-playbook.
    """
    from leadline.book.ansible.playbook import Playbook, prepared
    from leadline.book.command import run_request
    from leadline.book.spool import new_uid
    from leadline.cli.book.options import labels_of

    what = Playbook(
        playbook, inventories=inventory, limit=limit, tags=_words(tags), skip_tags=_words(skip_tags), check=check, diff=diff, user=user,
        become=become, forks=forks, inputs=_inputs(values), secrets=_secrets_of(secrets, "--secret"), more=more,
        vault_passwords=_secrets_of(vaults, "--vault"), become_password=_text_of(become_password),
        connection_password=_text_of(connection_password), private_key=_text_of(private_key),
    )  # fmt: skip
    pairs = {key: value or "" for key, value in labels_of(labels)}
    uid = new_uid()
    with prepared(what, uid=uid) as ready:
        return run_request(ready.request(name or Path(playbook).name, pairs))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _inputs(pairs: tuple[str, ...]) -> dict[str, str]:
    out = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise LeadlineError("usage", "--set takes NAME=VALUE", where=pair)
        out[name] = value
    return out
