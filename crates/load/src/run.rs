//! A whole run: connections made, threads started, what they tell put together.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;

use leadline_errors::{Error, Kind, Result};
use leadline_net::channel::Channel;
use leadline_net::clock::now_ns;
use leadline_net::postgres::{Login, Session};
use serde_json::Value as Json;

use crate::client::{Client, Shared};
use crate::dues::Dues;
use crate::mix::Mix;
use crate::names::{is_name, Names};
use crate::plan::{Plan, Source};
use crate::random::Random;
use crate::results::Results;
use crate::schedule::Schedule;
use crate::script::{Command, Script};
use crate::terminals::Terminals;
use crate::value::Value;
use crate::variables::Variables;
use crate::worker::{work, Told, Work};

/// Between the last connection and the first transaction, so that all threads begin at once.
const SETTLE_NS: i64 = 20_000_000;
/// The variable with the number of the terminal; -1 without terminals.
const TERMINAL_ID: &str = "terminal_id";
/// As pgbench names prepared statements.
const PREPARED: &str = "P_";

/// Runs it. `show`: gets each second as JSON. The results: as JSON.
pub fn run(login: &Login, plan: &Plan, stop: &AtomicBool, show: &mut dyn FnMut(&Json)) -> Result<Json> {
    let mut names = Names::default();
    let scripts = scripts(plan, &mut names)?;
    let mut base = Random::new(plan.seed);
    let randoms: Vec<Random> = (0..plan.clients).map(|_| base.child()).collect();
    let first = first_variables(plan, &mut names, &mut base)?;
    let client_id = names.number("client_id");
    let variable = names.number(TERMINAL_ID);
    let clients_own_id = first.iter().any(|(number, _)| *number == client_id);
    let mut variables = Variables::new(names.count());
    first.into_iter().for_each(|(number, value)| match value {
        Given::Value(value) => variables.set(number, value),
        Given::Text(text) => variables.set_text(number, text.as_bytes()),
    });

    let sockets = connect(login, plan, stop)?;
    let cipher = sockets.iter().flatten().find_map(Channel::cipher);
    let begins_ns = now_ns() + SETTLE_NS;
    let ends_ns = begins_ns + plan.phases.iter().map(|phase| phase.for_ns).sum::<i64>();
    let prepared = prepared_names(&scripts);
    let shared = Shared {
        scripts,
        names,
        mode: plan.mode,
        open: plan.terminals.is_some() || plan.phases.iter().any(|phase| phase.rate.is_some()),
        max_tries: plan.max_tries,
        continue_on_error: plan.continue_on_error,
        latency_limit_ns: plan.latency_limit.map(|limit| limit.as_nanos() as i64),
        ends_ns: AtomicI64::new(ends_ns),
        steady_ns: AtomicI64::new(i64::MAX),
        realtime: AtomicBool::new(true),
        terminal_id: variable,
        prepared,
    };
    let mut randoms = randoms.into_iter();
    let mut number = 0;
    let threads = sockets.into_iter().map(|sockets| {
        let clients = sockets.into_iter().zip(randoms.by_ref()).map(|(socket, random)| {
            let mut variables = variables.clone();
            if !clients_own_id {
                variables.set(client_id, Value::Int(number));
            }
            number += 1;
            Client::new(socket, &shared, variables, random)
        });
        (clients.collect(), base.child(), base.child(), base.child())
    });
    let threads: Vec<(Vec<Client>, Random, Random, Random)> = threads.collect(); // the last one is pgbench's for its log
    let (tell, told) = mpsc::channel();
    let mut results = Results::new(plan, &shared, begins_ns, threads.len());
    thread::scope(|scope| {
        let count = threads.len();
        let workers: Vec<_> = threads
            .into_iter()
            .enumerate()
            .map(|(number, (clients, choose, wait, _))| {
                let mix = Mix::new(plan.scripts.iter().map(|script| script.weight).collect(), choose);
                let (phases, place) = (plan.phases.as_slice(), (number, count));
                let dues = match &plan.terminals {
                    Some(of) => Dues::Terminals(Terminals::new(of, phases, begins_ns, place, mix.clone(), wait)),
                    None => {
                        let share = clients.len() as f64 / plan.clients as f64;
                        Dues::Rate(Schedule::new(phases, begins_ns, share, place, plan.poisson.then_some(wait)))
                    }
                };
                let drain_ns = plan.drain.as_nanos() as i64;
                let (shared, transactions, tell) = (&shared, plan.transactions, tell.clone());
                let task = Work { shared, phases, begins_ns, drain_ns, dues, mix, transactions, stop, tell, number };
                scope.spawn(move || work(task, clients))
            })
            .collect();
        drop(tell);
        for (thread, told) in told {
            match told {
                Told::Second(second) => results.second(thread, *second, show),
                Told::Part(part) => results.part(&part),
                Told::End(ended) => results.ended(&ended),
            }
        }
        for worker in workers {
            let outcome = worker.join().map_err(|panic| Error::fault("runs clients", &*panic))?;
            outcome.map_err(|e| Error::new(Kind::Fault, "cannot wait for the sockets").detail(e.to_string()))?;
        }
        Ok::<(), Error>(())
    })?;
    let mut found = results.json(show, stop.load(Relaxed));
    found["tls"] = cipher.into();
    Ok(found)
}

fn scripts(plan: &Plan, names: &mut Names) -> Result<Vec<Script>> {
    let parse = |source: &Source| Script::parse(&source.name, source.weight, &source.text, names);
    let scripts = plan.scripts.iter().map(parse).collect::<Result<Vec<_>>>()?;
    if scripts.iter().all(|script| script.weight == 0) {
        return Err(Error::new(Kind::Usage, "no script has a weight above 0"));
    }
    if plan.terminals.as_ref().is_some_and(|terminals| terminals.seconds.len() != scripts.len()) {
        return Err(Error::new(Kind::Usage, "terminals need the times of each script"));
    }
    if plan.clients == 0 || plan.threads == 0 || plan.phases.is_empty() {
        return Err(Error::new(Kind::Usage, "a load needs a client, a thread and a time"));
    }
    Ok(scripts)
}

/// Each statement of each script has a number.
fn prepared_names(scripts: &[Script]) -> Vec<Vec<String>> {
    let mut statements = 0;
    let mut name = |command: &Command| {
        statements += usize::from(matches!(command, Command::Sql(_)));
        format!("{PREPARED}{}", statements.max(1) - 1)
    };
    scripts.iter().map(|script| script.commands.iter().map(&mut name).collect()).collect()
}

enum Given {
    Value(Value),
    Text(String),
}

/// Variables that are set before the first command: those of the user, then pgbench's own.
fn first_variables(plan: &Plan, names: &mut Names, base: &mut Random) -> Result<Vec<(usize, Given)>> {
    let mut first = Vec::new();
    for (name, text) in &plan.variables {
        if !is_name(name) {
            return Err(Error::new(Kind::Usage, format!("{name:?} is not the name of a variable"))
                .hint("letters, digits and underscores, and no digit first"));
        }
        first.push((names.number(name), Given::Text(text.clone())));
    }
    let mut own = vec![("scale", Value::Int(plan.scale)), ("random_seed", Value::Int(plan.seed as i64))];
    own.push((TERMINAL_ID, Value::Int(-1)));
    if !plan.variables.iter().any(|(name, _)| name == "default_seed") {
        own.push(("default_seed", Value::Int(base.bits() as i64)));
    }
    for (name, value) in own {
        let number = names.number(name);
        if !first.iter().any(|(set, _)| *set == number) {
            first.push((number, Given::Value(value)));
        }
    }
    Ok(first)
}

/// Sockets that are logged in, for each thread.
fn connect(login: &Login, plan: &Plan, stop: &AtomicBool) -> Result<Vec<Vec<Channel>>> {
    let threads = plan.threads.min(plan.clients);
    let open = |count: usize| {
        let mut sockets = Vec::new();
        for _ in 0..count {
            if stop.load(Relaxed) {
                break;
            }
            let (session, _) = Session::open(login).map_err(|fault| fault.error(&login.place.to_string()))?;
            let lost = || Error::new(Kind::Connection, "the server closed the connection after the login");
            sockets.push(session.into_channel().ok_or_else(lost)?);
        }
        Ok(sockets)
    };
    let found: Result<Vec<Vec<Channel>>> = thread::scope(|scope| {
        let counts = (0..threads).map(|number| plan.clients / threads + usize::from(number < plan.clients % threads));
        let openers: Vec<_> = counts.map(|count| scope.spawn(move || open(count))).collect();
        let join = |opener: thread::ScopedJoinHandle<'_, Result<Vec<Channel>>>| {
            opener.join().map_err(|panic| Error::fault("connects", &*panic))?
        };
        openers.into_iter().map(join).collect()
    });
    let found = found?;
    if found.iter().map(Vec::len).sum::<usize>() < plan.clients {
        return Err(Error::new(Kind::Usage, "interrupted before all clients were connected"));
    }
    Ok(found)
}
