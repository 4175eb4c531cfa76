//! Stacks that the programs took, into the tables: followed as soon as it is known what their processes had mapped at the time, and
//! given names when the trace is over.

use std::collections::{BTreeSet, HashMap};

use blazesym::symbolize::Symbolizer;
use leadline_capture::Value;
use leadline_clockwork::OpenTables;
use leadline_errors::{Error, Result as Outcome};

use crate::functions::{functions, Function};
use crate::objects::MappedFile;
use crate::record::{Head, Stack, Why};
use crate::sideband::{Event, Sideband};
use crate::unwind::{Frame, Processes, Taken};

/// A stack that waits to be followed.
struct Pending {
    ts: u64,
    thread_id: i32,
    stack: Stack,
    kernel_stack_id: i32,
    bytes: Vec<u8>,
}

/// What turns stacks into rows.
pub struct Stacks {
    sideband: Sideband,
    processes: Processes,
    events: Vec<Event>,
    pending: Vec<Pending>,
    known: HashMap<(Vec<Frame>, bool), i32>,
}

impl Stacks {
    /// Begins to note what processes map.
    ///
    /// # Errors
    /// Kind rights or unsupported: the kernel refuses.
    pub fn open(cpus: &[u32]) -> Outcome<Stacks> {
        Ok(Stacks {
            sideband: Sideband::open(cpus)?,
            processes: Processes::default(),
            events: Vec::new(),
            pending: Vec::new(),
            known: HashMap::new(),
        })
    }

    /// Takes in processes that run.
    pub fn begin(&mut self, pids: &[u32]) {
        for pid in pids {
            self.processes.add(*pid);
        }
    }

    /// News of mappings that were lost: stacks through such files cannot be followed.
    pub fn lost(&self) -> u64 {
        self.sideband.lost
    }

    /// A stack was taken.
    pub fn push(&mut self, head: Head, thread_id: i32, stack: Stack, kernel_stack_id: i32, bytes: &[u8]) {
        self.pending.push(Pending { ts: head.ts, thread_id, stack, kernel_stack_id, bytes: bytes.to_vec() });
    }

    /// Follows the stacks taken up to `until`, all of which have been pushed, and writes them. What is later waits for the next time.
    pub fn write(&mut self, tables: &mut OpenTables, until: u64) -> Result<(), Error> {
        self.sideband.drain(&mut self.events);
        let mut events: Vec<Event> = self.events.extract_if(.., |event| event.ts <= until).collect();
        let mut pending: Vec<Pending> = self.pending.extract_if(.., |one| one.ts <= until).collect();
        events.sort_by_key(|event| event.ts);
        pending.sort_by_key(|one| one.ts);
        let mut events = events.iter().peekable();
        for one in pending {
            while let Some(event) = events.next_if(|event| event.ts <= one.ts) {
                self.processes.change(event);
            }
            let user_stack_id = self.user_stack(tables, &one)?;
            tables.write_rows("stack_sample", [sample_row(&one, user_stack_id)])?;
        }
        events.for_each(|event| self.processes.change(event));
        self.write_files(tables)
    }

    /// The number of the user's side of a stack; 0 when there is none.
    fn user_stack(&mut self, tables: &mut OpenTables, one: &Pending) -> Result<i32, Error> {
        let taken = Taken { ip: one.stack.ip, sp: one.stack.sp, bp: one.stack.bp, bytes: &one.bytes };
        if taken.ip == 0 {
            return Ok(0);
        }
        let followed = self.processes.unwind(one.stack.tgid, taken);
        if let Some(id) = self.known.get(&followed) {
            return Ok(*id);
        }
        let id = self.known.len() as i32 + 1;
        let (frames, complete) = &followed;
        let files: Vec<Value<'_>> = frames.iter().map(|(file, _)| Value::Int((*file).into())).collect();
        let addresses: Vec<Value<'_>> = frames.iter().map(|(_, address)| Value::UInt(*address)).collect();
        let row = vec![Value::Int(id.into()), Value::List(&files), Value::List(&addresses), Value::Bool(*complete)];
        tables.write_rows("user_stack", [row])?;
        self.known.insert(followed, id);
        Ok(id)
    }

    fn write_files(&mut self, tables: &mut OpenTables) -> Result<(), Error> {
        for file in self.processes.objects.new.drain(..) {
            let row = vec![Value::Int(file.id.into()), Value::Text(&file.path), Value::Text(&file.build_id)];
            tables.write_rows("mapped_file", [row])?;
        }
        Ok(())
    }

    /// Looks up the names of all functions that are in a stack.
    pub fn write_functions(&mut self, tables: &mut OpenTables) -> Result<(), Error> {
        let mut by_file: HashMap<i32, BTreeSet<u64>> = HashMap::new();
        for (file, address) in self.known.keys().flat_map(|(frames, _)| frames) {
            by_file.entry(*file).or_default().insert(*address);
        }
        let symbolizer = Symbolizer::builder().enable_auto_reload(false).enable_inlined_fns(false).build();
        for file in self.processes.objects.all() {
            let Some(addresses) = by_file.get(&file.id) else { continue };
            let addresses: Vec<u64> = addresses.iter().copied().collect();
            let found = self.functions(&symbolizer, file, &addresses);
            let rows = addresses.iter().zip(&found).filter(|(_, f)| !f.name.is_empty()).map(|(address, f)| {
                vec![
                    Value::Int(file.id.into()),
                    Value::UInt(*address),
                    Value::Text(&f.name),
                    Value::Text(&f.source),
                    Value::Int(f.line.into()),
                ]
            });
            tables.write_rows("user_function", rows)?;
        }
        Ok(())
    }

    /// The functions at these addresses. One without a name is called by where it begins, if the unwind tables say so.
    fn functions(&self, symbolizer: &Symbolizer, file: &MappedFile, addresses: &[u64]) -> Vec<Function> {
        let named = |name: String| Function { name, ..Function::default() };
        if let Some(maker) = &file.maker {
            let made = maker.functions(self.processes.objects.dumps(maker.pid));
            return addresses.iter().map(|at| named(made.name(*at).unwrap_or_default().to_owned())).collect();
        }
        let Some(path) = &file.found else { return vec![Function::default(); addresses.len()] };
        let mut found = functions(symbolizer, path, addresses);
        if found.iter().any(|function| function.name.is_empty()) {
            let (starts, base) = (file.starts(), file.path.rsplit('/').next().unwrap_or_default());
            let nameless = addresses.iter().zip(&mut found).filter(|(_, function)| function.name.is_empty());
            for (address, function) in nameless {
                if let Some(start) = starts.of(*address) {
                    *function = named(format!("{base}+0x{start:x}"));
                }
            }
        }
        found
    }
}

fn sample_row(one: &Pending, user_stack_id: i32) -> Vec<Value<'static>> {
    let kind = match one.stack.why {
        Why::OnCpu => "on_cpu",
        Why::Asleep => "asleep",
        Why::Failed => "failed",
    };
    vec![
        Value::Int(one.ts as i64),
        Value::Int(one.thread_id.into()),
        Value::Text(kind),
        Value::Int(one.stack.weight as i64),
        Value::Int(one.stack.nr.into()),
        Value::Int(one.stack.error.into()),
        Value::Int(one.kernel_stack_id.into()),
        Value::Int(user_stack_id.into()),
        Value::Int(one.stack.waker_tid.into()),
    ]
}
