//! `Echo` and the measuring clients of `leadline_net`. What they find comes as JSON.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Duration;

use leadline_errors::Error as Said;
use leadline_net::address::Place;
use leadline_net::fault::Fault;
use leadline_net::postgres::{Login as PgLogin, Session, SslMode};
use leadline_net::{
    clock, compare as ways, dbping as phases, delay, echo, fetch, rtt as round_trips, throughput as flows,
};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::error::Error;

/// How often a signal is looked for while a client measures.
const LOOK: Duration = Duration::from_millis(50);

/// Runs work in a thread of its own. After Ctrl-C it is told to stop, and what it has until then is the outcome, with `true`.
pub(crate) fn until_interrupted<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> Result<T, Said> + Send + 'static,
) -> PyResult<(T, bool)> {
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(told);
    let with = stop.clone();
    let worker = thread::spawn(move || {
        let outcome = work(&with);
        let _ = tell.send(()); // who waits for it is below
        outcome
    });
    let wait = || told.lock().recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout);
    while py.detach(wait) {
        if let Err(e) = py.check_signals() {
            if !e.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py) {
                stop.store(true, Relaxed);
                return Err(e);
            }
            stop.store(true, Relaxed);
        }
    }
    let outcome = py.detach(|| worker.join()).map_err(|panic| Error(Said::fault("measures", &*panic)))?;
    Ok((outcome.map_err(Error)?, stop.load(Relaxed)))
}

/// The server of `net rtt`.
#[pyclass(frozen, module = "leadline._core.net")]
pub(crate) struct Echo(Mutex<echo::Echo>);

#[pymethods]
impl Echo {
    #[new]
    fn new(py: Python<'_>, host: &str, port: u16) -> Result<Echo, Error> {
        Ok(Echo(Mutex::new(py.detach(|| echo::Echo::start(host, port))?)))
    }

    fn address(&self) -> (String, u16) {
        let address = self.0.lock().address();
        (address.ip().to_string(), address.port())
    }

    fn counts(&self) -> String {
        self.0.lock().counts().to_string()
    }

    fn stop(&self, py: Python<'_>) -> String {
        py.detach(|| {
            let mut server = self.0.lock();
            server.stop();
            server.counts().to_string()
        })
    }
}

/// The proxy that delays.
#[pyclass(frozen, module = "leadline._core.net")]
pub(crate) struct Delay(Mutex<delay::Delay>);

#[pymethods]
impl Delay {
    #[new]
    #[pyo3(signature = (host, port, to_host, to_port, *, rtt_s, jitter_s=0.0, rate_bit=None, window=None, buffer=None))]
    #[allow(clippy::too_many_arguments)] // named in Python
    fn new(
        py: Python<'_>,
        host: &str,
        port: u16,
        to_host: &str,
        to_port: u16,
        rtt_s: f64,
        jitter_s: f64,
        rate_bit: Option<f64>,
        window: Option<usize>,
        buffer: Option<usize>,
    ) -> Result<Delay, Error> {
        let plain = delay::Plan::new(seconds(rtt_s));
        let jitter_ns = seconds(jitter_s).as_nanos() as i64;
        let plan = delay::Plan { jitter_ns, rate_bit, window, buffer: buffer.unwrap_or(plain.buffer), ..plain };
        let to = Place::new(to_host, to_port);
        Ok(Delay(Mutex::new(py.detach(|| delay::Delay::start(host, port, &to, plan))?)))
    }

    fn address(&self) -> (String, u16) {
        let address = self.0.lock().address();
        (address.ip().to_string(), address.port())
    }

    fn upstream(&self) -> Vec<(String, u16)> {
        self.0.lock().upstream().into_iter().map(|a| (a.ip().to_string(), a.port())).collect()
    }

    fn stop(&self, py: Python<'_>) -> Result<String, Error> {
        Ok(py.detach(|| self.0.lock().stop())?.to_string())
    }
}

/// At most a day: what is longer, or no number, is not meant.
pub(crate) fn seconds(value: f64) -> Duration {
    Duration::from_secs_f64(if value.is_finite() { value.clamp(0.0, 86_400.0) } else { 86_400.0 })
}

/// What a reading of the clock costs.
#[pyfunction]
pub(crate) fn clock_cost(py: Python<'_>) -> String {
    py.detach(clock::clock_cost).to_string()
}

/// Round trips to an `Echo`; a flow does not wait for the replies to the requests before.
#[pyfunction]
#[pyo3(signature = (host, port, *, request, response, connections=1, rate_hz=None, flow=false, for_s=10.0, requests=None, timeout_s=5.0,
    interval_s=1.0, show=None))]
#[allow(clippy::too_many_arguments)] // named in Python
pub(crate) fn rtt(
    py: Python<'_>,
    host: &str,
    port: u16,
    request: u32,
    response: u32,
    connections: u32,
    rate_hz: Option<f64>,
    flow: bool,
    for_s: f64,
    requests: Option<u64>,
    timeout_s: f64,
    interval_s: f64,
    show: Option<Py<PyAny>>,
) -> PyResult<(String, bool)> {
    let plan = round_trips::Plan {
        request,
        response,
        connections,
        rate_hz,
        duration: seconds(for_s),
        most: requests,
        timeout: seconds(timeout_s),
        interval: Some(seconds(interval_s)),
    };
    let place = Place::new(host, port);
    let (found, interrupted) = until_interrupted(py, move |stop| {
        let run = if flow { flows::run } else { round_trips::run };
        run(&place, &plan, stop, &mut |row| show_row(show.as_ref(), row, stop))
    })?;
    Ok((found.to_string(), interrupted))
}

/// Gives a row to a function of Python. Where that fails, as when nobody reads the output any more, the measurement ends.
pub(crate) fn show_row(show: Option<&Py<PyAny>>, row: &impl std::fmt::Display, stop: &AtomicBool) {
    let Some(show) = show else { return };
    if Python::attach(|py| show.call1(py, (row.to_string(),)).is_err()) {
        stop.store(true, Relaxed);
    }
}

/// Who logs in where: the password goes in, and never comes out.
#[pyclass(frozen, module = "leadline._core.net")]
pub(crate) struct Login(pub(crate) PgLogin);

#[pymethods]
impl Login {
    #[new]
    #[pyo3(signature = (host, port, *, user, database, password=None, sslmode="prefer", sslrootcert=None, timeout_s=5.0, receive_buffer=None))]
    #[allow(clippy::too_many_arguments)] // named in Python
    fn new(
        host: &str,
        port: u16,
        user: String,
        database: String,
        password: Option<String>,
        sslmode: &str,
        sslrootcert: Option<PathBuf>,
        timeout_s: f64,
        receive_buffer: Option<u32>,
    ) -> Result<Login, Error> {
        let unknown =
            || usage(format!("sslmode {sslmode} is not one of: disable, prefer, require, verify-ca, verify-full"));
        let ssl = SslMode::parse(sslmode).ok_or_else(unknown)?;
        let zero = [&user, &database].into_iter().chain(&password).any(|text| text.contains('\0'));
        if zero {
            return Err(usage("user, database and password have no zero bytes".to_owned()));
        }
        let (place, timeout) = (Place::new(host, port), seconds(timeout_s));
        Ok(Login(PgLogin { place, user, database, password, ssl, root: sslrootcert, timeout, receive_buffer }))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

fn usage(message: String) -> Error {
    Said::new(leadline_errors::Kind::Usage, message).into()
}

/// One login to PostgreSQL and its end: what it took, or why it failed.
#[pyfunction]
pub(crate) fn postgres_login(py: Python<'_>, login: &Login) -> PyResult<(String, bool)> {
    let login = login.0.clone();
    let work = move |_: &AtomicBool| {
        Ok(match Session::open(&login) {
            Ok((session, took)) => {
                session.close();
                took.json()
            }
            Err(fault) => fault.outcome(),
        })
    };
    let (found, interrupted) = until_interrupted(py, work)?;
    Ok((found.to_string(), interrupted))
}

/// Phases of connections to a database.
#[pyfunction]
#[pyo3(signature = (login, protocol, *, connects, pings))]
pub(crate) fn dbping(
    py: Python<'_>,
    login: &Login,
    protocol: &str,
    connects: u32,
    pings: u32,
) -> PyResult<(String, bool)> {
    let (login, plan) = (login.0.clone(), phases::Plan { connects, pings });
    let protocol = protocol.to_owned();
    let work = move |stop: &AtomicBool| {
        let found = match protocol.as_str() {
            "postgres" if login.user.is_empty() => {
                phases::postgres_without_login(&login.place, plan, login.timeout, stop)
            }
            "postgres" => phases::postgres(&login, plan, stop),
            "mysql" => phases::mysql(&login, plan, stop),
            "tds" => phases::tds(&login.place, plan, login.timeout, stop),
            "oracle" => phases::oracle(&login.place, plan, login.timeout, stop),
            _ => phases::tcp(&login.place, plan, login.timeout, stop),
        };
        found.map_err(|fault| fault_of(&login.place, &fault))
    };
    let (found, interrupted) = until_interrupted(py, work)?;
    Ok((found.to_string(), interrupted))
}

fn fault_of(place: &Place, fault: &Fault) -> Said {
    fault.error(&place.to_string())
}

/// ICMP, the handshake of TCP and a round trip of an application, in turns.
#[pyfunction]
#[pyo3(signature = (host, port, application, *, count, pause_s, timeout_s))]
pub(crate) fn compare(
    py: Python<'_>,
    host: &str,
    port: u16,
    application: &str,
    count: u32,
    pause_s: f64,
    timeout_s: f64,
) -> PyResult<(String, bool)> {
    let place = Place::new(host, port);
    let application = match application {
        "echo" => ways::Application::Echo,
        "postgres" => ways::Application::Postgres,
        _ => ways::Application::None,
    };
    let (pause, timeout) = (seconds(pause_s), seconds(timeout_s));
    let work = move |stop: &AtomicBool| {
        ways::run(&place, application, count, pause, timeout, stop).map_err(|fault| fault_of(&place, &fault))
    };
    let (found, interrupted) = until_interrupted(py, work)?;
    Ok((found.to_string(), interrupted))
}

/// A session that fetches the rows of queries.
#[pyclass(frozen, module = "leadline._core.net")]
pub(crate) struct Fetcher {
    session: Arc<Mutex<Session>>,
    place: Place,
}

#[pymethods]
impl Fetcher {
    #[new]
    fn new(py: Python<'_>, login: &Login) -> Result<Fetcher, Error> {
        let (session, _) = py.detach(|| Session::open(&login.0)).map_err(|fault| fault_of(&login.0.place, &fault))?;
        Ok(Fetcher { session: Arc::new(Mutex::new(session)), place: login.0.place.clone() })
    }

    /// Our address and that of the other end, as IP and port; None over a unix socket.
    fn addresses(&self) -> Option<(Named, Named)> {
        let (here, there) = self.session.lock().link.addresses()?;
        Some((named(here), named(there)))
    }

    /// Reads a query with so many rows for each Execute.
    #[pyo3(signature = (sql, rows, *, server=None))]
    fn run(&self, py: Python<'_>, sql: &str, rows: u32, server: Option<(Named, Named)>) -> PyResult<(String, bool)> {
        let parse = |(ip, port): Named| Some(SocketAddr::new(ip.parse().ok()?, port));
        let server = server.and_then(|(local, remote)| parse(local).zip(parse(remote)));
        let (session, place, sql) = (self.session.clone(), self.place.clone(), sql.to_owned());
        let work = move |stop: &AtomicBool| {
            let mut session = session.lock();
            fetch::run(&mut session, &sql, rows, server, stop).map_err(|fault| fault_of(&place, &fault))
        };
        let (found, interrupted) = until_interrupted(py, work)?;
        Ok((found.to_string(), interrupted))
    }
}

/// IP and port.
type Named = (String, u16);

fn named(address: SocketAddr) -> Named {
    (address.ip().to_string(), address.port())
}
