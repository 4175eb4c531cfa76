//! One client: a connection that runs scripts, command by command, and never waits.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use leadline_net::channel::Channel;
use leadline_protocol::backend::{columns, values, Failure};
use leadline_protocol::frontend::Out;

use crate::eval::{eval, Context};
use crate::input::{Came, Input};
use crate::names::{is_name, Names};
use crate::random::Random;
use crate::script::expr::Expr;
use crate::script::{Amount, Command, Piece, Script, Sql, Store};
use crate::tallies::Tally;
use crate::value::Value;
use crate::variables::Variables;

/// A pipeline of more bytes than these begins to be sent before its end.
const FULL: usize = 64 << 10;
/// What an error is counted under that has no SQLSTATE.
const OF_SCRIPT: &str = "script";
const OF_CONNECTION: &str = "connection";

/// How statements go to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // named as pgbench names them
pub enum Mode {
    Simple,
    Extended,
    Prepared,
}

/// What all clients share.
pub(crate) struct Shared {
    pub(crate) scripts: Vec<Script>,
    pub(crate) names: Names,
    pub(crate) mode: Mode,
    /// 0: as often as the time allows.
    pub(crate) max_tries: u32,
    pub(crate) continue_on_error: bool,
    pub(crate) latency_limit_ns: Option<i64>,
    /// Transactions are due at moments; else when they begin.
    pub(crate) open: bool,
    /// Nothing is begun or begun again after it.
    pub(crate) ends_ns: AtomicI64,
    /// When the warm-up ends, if that is before its time.
    pub(crate) steady_ns: AtomicI64,
    /// Whether all threads of an open loop have a real-time priority.
    pub(crate) realtime: AtomicBool,
    /// The number of the variable.
    pub(crate) terminal_id: usize,
    /// Names of prepared statements, by script and command.
    pub(crate) prepared: Vec<Vec<String>>,
}

/// What a client does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It waits for the server.
    Wait,
    /// It waits for this moment.
    Sleep(i64),
    /// The transaction has ended, well or not.
    Ended { well: bool },
    /// It has ended for good.
    Gone,
}

/// What the answer that is awaited belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Nothing,
    Statement,
    Prepare,
    Pipeline,
    Rollback,
}

/// A result that goes into variables.
#[derive(Default)]
struct Kept {
    /// None: the statement gives no rows.
    columns: Option<Vec<String>>,
    rows: u64,
    last: Vec<u8>,
    complete: bool,
}

pub(crate) struct Client {
    channel: Channel,
    input: Input,
    out: Out,
    written: usize,
    variables: Variables,
    random: Random,
    /// As it was when the transaction began: one that is begun again draws the same numbers.
    first_random: Random,
    prepared: Vec<Vec<bool>>,
    preparing: Vec<usize>,
    awaited: Awaited,
    /// ReadyForQuery messages that are to come.
    ready: u32,
    /// Of the last ReadyForQuery: idle, in a transaction, or in a failed one.
    status: u8,
    pipeline: bool,
    script: usize,
    at: usize,
    rows: u64,
    kept: Kept,
    failure: Option<Failure>,
    again: bool,
    tries: u32,
    due_ns: i64,
    began_ns: i64,
    statement_ns: i64,
    /// Since when it has nothing to do.
    pub(crate) free_ns: i64,
    /// In which its transaction was due.
    pub(crate) phase: usize,
    /// For which it works.
    pub(crate) terminal: Option<usize>,
    /// How many it has begun.
    pub(crate) transactions: u64,
}

impl Client {
    pub(crate) fn new(channel: Channel, shared: &Shared, variables: Variables, random: Random) -> Client {
        Client {
            channel,
            input: Input::new(),
            out: Out::default(),
            written: 0,
            variables,
            random,
            first_random: random,
            prepared: shared.scripts.iter().map(|script| vec![false; script.commands.len()]).collect(),
            preparing: Vec::new(),
            awaited: Awaited::Nothing,
            ready: 0,
            status: b'I',
            pipeline: false,
            script: 0,
            at: 0,
            rows: 0,
            kept: Kept::default(),
            failure: None,
            again: false,
            tries: 0,
            due_ns: 0,
            began_ns: 0,
            statement_ns: 0,
            free_ns: 0,
            phase: 0,
            terminal: None,
            transactions: 0,
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.channel.fd()
    }

    /// Whether bytes wait for room in the socket.
    pub(crate) fn wants_to_write(&self) -> bool {
        self.written < self.out.0.len() || self.channel.wants_to_write()
    }

    /// Begins a transaction that was due at this moment.
    pub(crate) fn begin(&mut self, script: usize, due_ns: i64, now: i64, shared: &Shared, tally: &mut Tally) -> Step {
        (self.script, self.at, self.tries) = (script, 0, 1);
        (self.due_ns, self.began_ns) = (due_ns, now);
        self.first_random = self.random;
        tally.second.begun += 1;
        self.transactions += 1;
        if let Some(terminal) = self.terminal {
            self.variables.set(shared.terminal_id, Value::Int(terminal as i64));
        }
        self.run(shared, tally, now)
    }

    /// After a sleep.
    pub(crate) fn wake(&mut self, shared: &Shared, tally: &mut Tally, now: i64) -> Step {
        self.at += 1;
        self.run(shared, tally, now)
    }

    /// Bytes may have come.
    pub(crate) fn readable(&mut self, shared: &Shared, tally: &mut Tally, now: i64) -> Step {
        match self.take_in(shared, tally, now) {
            Ok(step) => step,
            Err(e) => self.lost(&e, tally),
        }
    }

    /// There may be room for bytes.
    pub(crate) fn writable(&mut self, tally: &mut Tally) -> Step {
        match self.send(tally) {
            Ok(()) => Step::Wait,
            Err(e) => self.lost(&e, tally),
        }
    }

    /// Since when the transaction that is under way was due.
    pub(crate) fn under_way(&self) -> Option<i64> {
        (self.tries > 0).then_some(self.due_ns)
    }

    /// Says good-bye; the server ends the session in its own time.
    pub(crate) fn close(&mut self) {
        self.out = Out::default().terminate();
        self.written = 0;
        let _ = self.channel.write(&self.out.0); // whether it is sent no longer matters
    }

    fn send(&mut self, tally: &mut Tally) -> io::Result<()> {
        while self.written < self.out.0.len() {
            match self.channel.write(&self.out.0[self.written..]) {
                Ok(sent) => {
                    self.written += sent;
                    tally.second.sent_bytes += sent as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        match self.channel.flush() {
            Err(e) if !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return Err(e),
            _ => {}
        }
        self.out.0.clear();
        self.written = 0;
        Ok(())
    }

    fn flush(&mut self, tally: &mut Tally) -> Step {
        self.writable(tally)
    }

    fn lost(&mut self, e: &io::Error, tally: &mut Tally) -> Step {
        if let Some(failure) = self.failure.take() {
            return self.gone(&failure.sqlstate, &failure.message, tally); // it said why before it closed
        }
        let said = match e.kind() {
            io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
            _ => e.to_string(),
        };
        self.gone(OF_CONNECTION, &said, tally)
    }

    fn gone(&mut self, sqlstate: &str, said: &str, tally: &mut Tally) -> Step {
        tally.part.error(sqlstate, said, false);
        if self.tries > 0 {
            tally.second.failed += 1;
            tally.part.scripts[self.script].failed += 1;
        }
        self.tries = 0;
        self.close();
        Step::Gone
    }

    fn wrong(&mut self, said: &str, shared: &Shared, tally: &mut Tally) -> Step {
        let said = format!("{}: command {}: {said}", shared.scripts[self.script].name, self.at + 1);
        self.gone(OF_SCRIPT, &said, tally)
    }

    /// Commands, until one has to wait.
    fn run(&mut self, shared: &Shared, tally: &mut Tally, now: i64) -> Step {
        loop {
            let Some(command) = shared.scripts[self.script].commands.get(self.at) else {
                return self.end(shared, tally, now);
            };
            match command {
                Command::Sql(sql) => {
                    if self.pipeline && sql.store.is_some() {
                        return self.wrong("\\gset and \\aset are not allowed in a pipeline", shared, tally);
                    }
                    if shared.mode == Mode::Prepared && !self.prepared[self.script][self.at] {
                        self.parse(self.at, sql, shared);
                        if !self.pipeline {
                            return self.await_prepared(tally);
                        }
                    }
                    if !self.pipeline {
                        self.statement_ns = now;
                    }
                    self.put(sql, shared);
                    if !self.pipeline {
                        self.expect(Awaited::Statement, 1);
                        return self.flush(tally);
                    }
                    if self.out.0.len() > FULL && self.flush(tally) == Step::Gone {
                        return Step::Gone;
                    }
                }
                Command::Set { name, value } => match self.eval(value, shared) {
                    Ok(value) => self.variables.set(*name, value),
                    Err(said) => return self.wrong(&said, shared, tally),
                },
                Command::If(..) => match self.branch(shared) {
                    Ok(()) => {}
                    Err(said) => return self.wrong(&said, shared, tally),
                },
                // Behind a block that was run.
                Command::Elif(_, _, end) | Command::Else(end) => self.at = *end,
                Command::Endif => {}
                Command::Sleep(amount, unit) => match self.amount(amount, &shared.names) {
                    Ok(amount) => return Step::Sleep(now.saturating_add(amount.saturating_mul(*unit))),
                    Err(said) => return self.wrong(&said, shared, tally),
                },
                Command::StartPipeline => {
                    if self.pipeline {
                        return self.wrong("already in pipeline mode", shared, tally);
                    }
                    if shared.mode == Mode::Simple {
                        return self.wrong("a pipeline needs the extended or prepared mode", shared, tally);
                    }
                    if shared.mode == Mode::Prepared && self.parse_pipeline(shared) {
                        return self.await_prepared(tally);
                    }
                    self.pipeline = true;
                    self.statement_ns = now;
                }
                Command::SyncPipeline | Command::EndPipeline if !self.pipeline => {
                    return self.wrong("not in pipeline mode", shared, tally);
                }
                Command::SyncPipeline => {
                    self.out.append(Out::sync);
                    self.ready += 1;
                }
                Command::EndPipeline => {
                    self.out.append(Out::sync);
                    self.expect(Awaited::Pipeline, 1);
                    return self.flush(tally);
                }
            }
            self.at += 1;
        }
    }

    fn expect(&mut self, awaited: Awaited, ready: u32) {
        self.awaited = awaited;
        self.ready += ready;
        self.rows = 0;
        self.kept = Kept::default();
    }

    fn parse(&mut self, at: usize, sql: &Sql, shared: &Shared) {
        self.out.append(|out| out.parse(&shared.prepared[self.script][at], &sql.numbered));
        self.prepared[self.script][at] = true;
        self.preparing.push(at);
    }

    /// Statements of a pipeline are prepared before it: a Parse in it would take a snapshot before its BEGIN says which.
    fn parse_pipeline(&mut self, shared: &Shared) -> bool {
        for (at, command) in shared.scripts[self.script].commands.iter().enumerate().skip(self.at + 1) {
            match command {
                Command::Sql(sql) if !self.prepared[self.script][at] => self.parse(at, sql, shared),
                Command::EndPipeline => break,
                _ => {}
            }
        }
        !self.preparing.is_empty()
    }

    fn await_prepared(&mut self, tally: &mut Tally) -> Step {
        self.out.append(Out::sync);
        self.expect(Awaited::Prepare, 1);
        self.flush(tally)
    }

    /// The messages of a statement, as libpq sends them.
    fn put(&mut self, sql: &Sql, shared: &Shared) {
        let variables = &self.variables;
        if shared.mode == Mode::Simple {
            self.out.append(|out| {
                out.query_of(|out| {
                    for piece in &sql.pieces {
                        match piece {
                            Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                            Piece::Variable(number) if variables.write(*number, out) => {}
                            Piece::Variable(number) => {
                                out.push(b':');
                                out.extend_from_slice(shared.names.name(*number).as_bytes());
                            }
                        }
                    }
                })
            });
            return;
        }
        let name = match shared.mode {
            Mode::Prepared => shared.prepared[self.script][self.at].as_str(),
            _ => "",
        };
        let (count, pipeline) = (sql.parameters.len() as u16, self.pipeline);
        self.out.append(|mut out| {
            if shared.mode == Mode::Extended {
                out = out.parse("", &sql.numbered);
            }
            let value = |out: &mut Vec<u8>, number: usize| variables.write(sql.parameters[number], out);
            out = out.bind_values("", name, count, value).describe_portal("").execute("", 0);
            if pipeline {
                out
            } else {
                out.sync()
            }
        });
    }

    fn eval(&mut self, expr: &Expr, shared: &Shared) -> Result<Value, String> {
        let mut context = Context {
            variables: &self.variables,
            names: &shared.names,
            random: &mut self.random,
            place: (self.script, self.at),
        };
        eval(expr, &mut context)
    }

    /// Goes from a condition that is false to the next one, up to a block that is run.
    fn branch(&mut self, shared: &Shared) -> Result<(), String> {
        loop {
            let (condition, next) = match &shared.scripts[self.script].commands[self.at] {
                Command::If(condition, next) | Command::Elif(condition, next, _) => (condition, *next),
                _ => return Ok(()), // \else or \endif
            };
            if self.eval(condition, shared)?.is_true() {
                return Ok(());
            }
            self.at = next;
        }
    }

    fn amount(&self, amount: &Amount, names: &Names) -> Result<i64, String> {
        let number = match amount {
            Amount::Constant(amount) => return Ok(*amount),
            Amount::Variable(number) => *number,
        };
        let (name, mut text) = (names.name(number), Vec::new());
        if !self.variables.write(number, &mut text) {
            return Err(format!("undefined variable \"{name}\""));
        }
        let text = String::from_utf8_lossy(&text);
        let end =
            text.bytes().enumerate().take_while(|(at, byte)| byte.is_ascii_digit() || (*at == 0 && *byte == b'-'));
        text[..end.count()].parse().map_err(|_| format!("invalid sleep time \"{text}\" for variable \"{name}\""))
    }

    /// Reads up to what ends the answer, or all there is.
    fn take_in(&mut self, shared: &Shared, tally: &mut Tally, now: i64) -> io::Result<Step> {
        loop {
            match self.input.read(|into| self.channel.read(into))? {
                Came::Nothing => return Ok(Step::Wait),
                Came::Bytes(count) => tally.second.received_bytes += count as u64,
            }
            if let Some(step) = self.messages(shared, tally, now)? {
                return Ok(step);
            }
        }
    }

    /// Messages that are there; None if the answer has not ended with them.
    fn messages(&mut self, shared: &Shared, tally: &mut Tally, now: i64) -> io::Result<Option<Step>> {
        let store = match &shared.scripts[self.script].commands.get(self.at) {
            Some(Command::Sql(sql)) if self.awaited == Awaited::Statement => sql.store.as_ref(),
            _ => None,
        };
        while let Some((kind, range)) = self.input.message(store.is_some())? {
            match kind {
                b'D' => {
                    self.rows += 1;
                    if store.is_some() {
                        self.kept.rows += 1;
                        self.kept.last.clear();
                        self.kept.last.extend_from_slice(self.input.body(range));
                    }
                }
                b'Z' => {
                    self.status = self.input.body(range).first().copied().unwrap_or(b'I');
                    self.ready = self.ready.saturating_sub(1);
                    if self.ready == 0 && self.awaited != Awaited::Nothing {
                        return Ok(Some(self.answered(store, shared, tally, now)));
                    }
                }
                b'E' => {
                    let failure = Failure::of(self.input.body(range));
                    self.failure.get_or_insert(failure);
                }
                b'T' if store.is_some() => {
                    let names = columns(self.input.body(range)).ok_or(io::ErrorKind::InvalidData)?;
                    self.kept =
                        Kept { columns: Some(names.into_iter().map(String::from).collect()), ..Kept::default() };
                }
                b'C' | b'I' => {
                    if let Some(store) = store {
                        if let Err(said) = self.result_ended(kind, store, shared) {
                            return Ok(Some(self.wrong(&said, shared, tally)));
                        }
                    }
                }
                b'G' | b'H' | b'W' => return Ok(Some(self.wrong("COPY is not supported", shared, tally))),
                _ => {} // ParseComplete, BindComplete, notices, parameters, notifications
            }
        }
        Ok(None)
    }

    /// One of the results of a statement, of which `\aset` takes each that has rows and `\gset` the last.
    fn result_ended(&mut self, kind: u8, store: &Store, shared: &Shared) -> Result<(), String> {
        if store.all {
            if self.kept.rows > 0 {
                self.assign(store, shared)?;
            }
            self.kept = Kept::default();
        } else if self.kept.complete || kind == b'I' {
            self.kept = Kept { complete: true, ..Kept::default() }; // the last one has no rows
        } else {
            self.kept.complete = true;
        }
        Ok(())
    }

    fn assign(&mut self, store: &Store, shared: &Shared) -> Result<(), String> {
        let names = self.kept.columns.take().unwrap_or_default();
        let values = values(&self.kept.last).ok_or("a row ends before its columns")?;
        for (name, value) in names.iter().zip(values) {
            let name = format!("{}{name}", store.prefix);
            if !is_name(&name) {
                return Err(format!("invalid variable name: \"{name}\""));
            }
            // A name that no script has is never asked for.
            if let Some(number) = shared.names.known(&name) {
                self.variables.set_text(number, value.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// All of an answer is there.
    fn answered(&mut self, store: Option<&Store>, shared: &Shared, tally: &mut Tally, now: i64) -> Step {
        let awaited = std::mem::replace(&mut self.awaited, Awaited::Nothing);
        self.pipeline &= awaited == Awaited::Prepare;
        let preparing = std::mem::take(&mut self.preparing);
        if let Some(failure) = self.failure.take() {
            if awaited == Awaited::Rollback {
                return self.gone(&failure.sqlstate, &failure.message, tally);
            }
            preparing.iter().for_each(|at| self.prepared[self.script][*at] = false);
            return self.failed(&failure, shared, tally, now);
        }
        match awaited {
            Awaited::Statement | Awaited::Pipeline => {
                let statement = &mut tally.part.statements[self.script][self.at];
                statement.took(now - self.statement_ns);
                statement.rows += self.rows;
                tally.second.rows += self.rows;
                if let Some(store) = store.filter(|store| !store.all) {
                    let rows = if self.kept.columns.is_some() { self.kept.rows } else { 0 };
                    let assigned = match rows {
                        1 => self.assign(store, shared),
                        rows => Err(format!("expected one row, got {rows}")),
                    };
                    if let Err(said) = assigned {
                        return self.wrong(&said, shared, tally);
                    }
                }
                self.at += 1;
                self.run(shared, tally, now)
            }
            Awaited::Rollback => self.settle(shared, tally, now),
            Awaited::Prepare | Awaited::Nothing => self.run(shared, tally, now),
        }
    }

    fn failed(&mut self, failure: &Failure, shared: &Shared, tally: &mut Tally, now: i64) -> Step {
        let may_pass = matches!(failure.sqlstate.as_str(), "40001" | "40P01");
        if !may_pass && !shared.continue_on_error {
            tally.part.statements[self.script][self.at].failed += 1;
            return self.gone(&failure.sqlstate, &failure.message, tally);
        }
        let too_late = shared.latency_limit_ns.is_some_and(|limit| now - self.due_ns > limit)
            || now >= shared.ends_ns.load(Relaxed);
        self.again = may_pass && !too_late && (shared.max_tries == 0 || self.tries < shared.max_tries);
        tally.part.error(&failure.sqlstate, &failure.message, self.again);
        let statement = &mut tally.part.statements[self.script][self.at];
        statement.failed += u64::from(!self.again);
        statement.retried += u64::from(self.again);
        if self.status == b'I' {
            return self.settle(shared, tally, now);
        }
        self.out.append(|out| out.query_of(|out| out.extend_from_slice(b"ROLLBACK")));
        self.expect(Awaited::Rollback, 1);
        self.flush(tally)
    }

    /// No transaction is open any more: begins it again, or counts it as failed.
    fn settle(&mut self, shared: &Shared, tally: &mut Tally, now: i64) -> Step {
        if self.again {
            self.again = false;
            self.tries += 1;
            tally.second.retries += 1;
            self.random = self.first_random;
            self.at = 0;
            return self.run(shared, tally, now);
        }
        tally.second.failed += 1;
        tally.part.scripts[self.script].failed += 1;
        self.tries = 0;
        Step::Ended { well: false }
    }

    fn end(&mut self, shared: &Shared, tally: &mut Tally, now: i64) -> Step {
        if self.pipeline {
            return self.wrong("the script ends in a pipeline", shared, tally);
        }
        if self.status != b'I' {
            return self.wrong("the script ends without completing its transaction", shared, tally);
        }
        tally.second.done += 1;
        tally.second.service.record(now - self.began_ns);
        if shared.open {
            tally.second.latency.record(now - self.due_ns);
        }
        if shared.scripts.len() > 1 {
            tally.part.scripts[self.script].latency.get_or_insert_default().record(now - self.due_ns);
        }
        self.tries = 0;
        Step::Ended { well: true }
    }
}
