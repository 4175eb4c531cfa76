//! The load client of `leadline_load`. What it finds comes as JSON.

use leadline_errors::{Error as Said, Kind};
use leadline_load::tpcc::{rows, Sizes, Table};
use leadline_load::{Mode, Phase, Plan, Source, TerminalPlan};
use pyo3::prelude::*;

use crate::error::Error;
use crate::net::{seconds, show_row, until_interrupted, Login};

/// The text of a script that is built in, or None.
#[pyfunction]
pub(crate) fn builtin(name: &str) -> Option<&'static str> {
    leadline_load::script::builtin(name)
}

/// Checks scripts (name, weight, text) without running them.
#[pyfunction]
pub(crate) fn check(scripts: Vec<(String, u32, String)>) -> Result<(), Error> {
    let mut names = leadline_load::names::Names::default();
    for (name, weight, text) in scripts {
        leadline_load::script::Script::parse(&name, weight, &text, &mut names)?;
    }
    Ok(())
}

/// Runs scripts (name, weight, text) for phases (rate, seconds, warm-up).
#[pyfunction]
#[pyo3(signature = (login, scripts, phases, *, mode, clients, threads, poisson, scale, variables, seed, max_tries, continue_on_error,
    latency_limit_s=None, drain_s=10.0, histograms=false, terminals=None, transactions=None, auto_warm_up=None, show=None))]
#[allow(clippy::too_many_arguments)] // named in Python
pub(crate) fn run(
    py: Python<'_>,
    login: &Login,
    scripts: Vec<(String, u32, String)>,
    phases: Vec<(Option<f64>, f64, bool)>,
    mode: &str,
    clients: usize,
    threads: usize,
    poisson: bool,
    scale: i64,
    variables: Vec<(String, String)>,
    seed: u64,
    max_tries: u32,
    continue_on_error: bool,
    latency_limit_s: Option<f64>,
    drain_s: f64,
    histograms: bool,
    terminals: Option<(usize, Vec<(f64, f64)>)>,
    transactions: Option<u64>,
    auto_warm_up: Option<usize>,
    show: Option<Py<PyAny>>,
) -> PyResult<(String, bool)> {
    let mode = match mode {
        "simple" => Mode::Simple,
        "extended" => Mode::Extended,
        "prepared" => Mode::Prepared,
        _ => return Err(Error(Said::new(Kind::Usage, format!("{mode} is no mode of the protocol"))).into()),
    };
    let source = |(name, weight, text)| Source { name, weight, text };
    let phase = |(rate, for_s, warm_up)| Phase { rate, for_ns: seconds(for_s).as_nanos() as i64, warm_up };
    let plan = Plan {
        scripts: scripts.into_iter().map(source).collect(),
        mode,
        clients,
        threads,
        phases: phases.into_iter().map(phase).collect(),
        poisson,
        terminals: terminals.map(|(count, seconds)| TerminalPlan { count, seconds }),
        transactions,
        auto_warm_up,
        scale,
        variables,
        seed,
        max_tries,
        continue_on_error,
        latency_limit: latency_limit_s.map(seconds),
        drain: seconds(drain_s),
        histograms,
    };
    let login = login.0.clone();
    let (found, interrupted) = until_interrupted(py, move |stop| {
        leadline_load::run(&login, &plan, stop, &mut |row| show_row(show.as_ref(), row, stop))
    })?;
    Ok((found.to_string(), interrupted))
}

/// How many numbers a table of TPC-C has for its rows.
#[pyfunction]
pub(crate) fn tpcc_numbers(table: &str, items: i64, customers: i64) -> Result<i64, Error> {
    Ok(tpcc_table(table)?.numbers(Sizes { items, customers }))
}

/// Rows of a table of TPC-C, in the text format of COPY.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // named in Python
pub(crate) fn tpcc_rows(
    py: Python<'_>,
    table: &str,
    warehouse: i64,
    items: i64,
    customers: i64,
    from: i64,
    to: i64,
    entered: &str,
) -> Result<String, Error> {
    let table = tpcc_table(table)?;
    Ok(py.detach(|| rows(table, warehouse, Sizes { items, customers }, from..to, entered)))
}

fn tpcc_table(name: &str) -> Result<Table, Error> {
    Table::of(name).ok_or_else(|| Error(Said::new(Kind::Usage, format!("{name} is no table of TPC-C"))))
}
