//! A call that was refused: what it was about, and the facts behind it, read while its process is stopped.

use crate::calls::{self, About, Call, Class};
use crate::facts;
use crate::holders;
use crate::memory;
use crate::state::State;
use crate::tree::Failure;
use libc as c;
use serde_json::{json, Value};

/// The program that an exec names.
pub(crate) fn program_of(pid: i32, nr: i64, args: &[u64; 6]) -> Option<Vec<u8>> {
    let call = calls::find(nr).filter(|call| call.class == Class::Exec)?;
    path_of(pid, call, args)
}

/// The absolute path that a call names, or what its descriptor stands for.
pub(crate) fn path_of(pid: i32, call: &Call, args: &[u64; 6]) -> Option<Vec<u8>> {
    match call.about {
        About::Path(_) => facts::absolute(pid, None, &given_path(pid, call, args)?),
        About::At(n) => facts::absolute(pid, Some(args[n] as i32), &given_path(pid, call, args)?),
        About::Fd(n) => facts::descriptor(pid, args[n] as i32),
        About::Address(..) | About::Nothing => None,
    }
}

/// The path as the call has it.
pub(crate) fn given_path(pid: i32, call: &Call, args: &[u64; 6]) -> Option<Vec<u8>> {
    match call.about {
        About::Path(n) => memory::string(pid, args[n]),
        About::At(n) => memory::string(pid, args[n + 1]),
        _ => None,
    }
}

pub(crate) fn base(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// What the arguments tell of the purpose of a call.
pub(crate) fn detail(pid: i32, call: &Call, args: &[u64; 6]) -> Value {
    let access = |flags: u64| match flags as i32 & c::O_ACCMODE {
        c::O_RDONLY => "r",
        c::O_WRONLY => "w",
        _ => "rw",
    };
    let opened = |flags: u64| json!({"wants": access(flags), "creates": flags as i32 & c::O_CREAT != 0, "alone": flags as i32 & c::O_EXCL != 0});
    let asked = |mode: u64| {
        let bits = [(c::R_OK, 'r'), (c::W_OK, 'w'), (c::X_OK, 'x')];
        let wants: String = bits.iter().filter(|(bit, _)| mode as i32 & bit != 0).map(|(_, letter)| letter).collect();
        json!({"wants": wants})
    };
    let first_path = |folder: Option<usize>, n: usize| {
        let given = memory::string(pid, args[n]).unwrap_or_default();
        let from = facts::absolute(pid, folder.map(|n| args[n] as i32), &given).unwrap_or_default();
        json!({"from": memory::text(&from), "from_exists": facts::exists(pid, &from)})
    };
    let of_host = || facts::shares_namespace(pid, "ipc");
    match call.nr {
        c::SYS_open => opened(args[1]),
        c::SYS_openat => opened(args[2]),
        c::SYS_openat2 => {
            let how = memory::read(pid, args[2], 8);
            how.try_into().map_or(Value::Null, |how| opened(u64::from_le_bytes(how)))
        }
        c::SYS_creat => json!({"wants": "w", "creates": true}),
        c::SYS_access => asked(args[1]),
        c::SYS_faccessat | c::SYS_faccessat2 => asked(args[2]),
        c::SYS_execve | c::SYS_execveat => json!({"wants": "x"}),
        c::SYS_mmap => {
            let has = |flag: i32| args[3] & flag as u64 != 0;
            json!({"length": args[1], "huge": has(c::MAP_HUGETLB), "anonymous": has(c::MAP_ANONYMOUS)})
        }
        c::SYS_rename | c::SYS_link => first_path(None, 0),
        c::SYS_renameat | c::SYS_renameat2 | c::SYS_linkat => first_path(Some(0), 1),
        c::SYS_shmget => json!({"size": args[1], "huge": args[2] & c::SHM_HUGETLB as u64 != 0, "of_host": of_host()}),
        c::SYS_semget | c::SYS_msgget => json!({"size": args[1], "of_host": of_host()}),
        c::SYS_flock | c::SYS_fcntl => {
            json!({"lock": args[0] as i32, "copies": call.nr == c::SYS_fcntl && is_copy(args[1])})
        }
        c::SYS_mlock | c::SYS_mlock2 => json!({"size": args[1]}),
        _ => Value::Null,
    }
}

/// A command of fcntl that copies a descriptor.
fn is_copy(command: u64) -> bool {
    [c::F_DUPFD as u64, c::F_DUPFD_CLOEXEC as u64].contains(&command)
}

/// A call that was refused, before the facts behind it are read.
pub(crate) struct Refused {
    pub(crate) call: &'static Call,
    pub(crate) errno: i32,
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) address: Option<String>,
    pub(crate) by_filter: bool,
    pub(crate) detail: Value,
}

/// The failure's place in the tree, with the facts behind it; it may have happened before.
pub(crate) fn keep(f: &mut State, pid: i32, at: usize, refused: Refused) -> Option<usize> {
    let Refused { call, errno, path, address, by_filter, detail } = refused;
    let fd = detail["lock"].as_i64().map(|fd| fd as i32);
    let name = path.clone().or_else(|| address.clone().map(String::into_bytes)).unwrap_or_default();
    let ts_ns = f.now_ns();
    if let Some(known) = f.tree.again(at, call.nr, errno, &name, ts_ns) {
        return Some(known);
    }
    let mut facts = facts(pid, call, errno, path.as_deref(), address.as_deref());
    if let (Some(holder), Some(map)) = (fd.and_then(|fd| holders::of_lock(pid, fd)), facts.as_object_mut()) {
        map.insert("holder".into(), holder);
    }
    let failure = Failure {
        process: at,
        call,
        errno,
        path,
        address,
        ts_ns,
        count: 1,
        said: 0,
        said_ns: None,
        line: Vec::new(),
        before_exec: false,
        resolved: false,
        by_filter,
        facts,
        detail,
    };
    f.tree.add_failure(&name, failure)
}

fn facts(pid: i32, call: &Call, errno: i32, path: Option<&[u8]>, address: Option<&str>) -> Value {
    let locks = [c::SYS_mlock, c::SYS_mlock2, c::SYS_mlockall].contains(&call.nr);
    let mut facts = match errno {
        c::EMFILE | c::ENFILE | c::EFBIG | c::ENOMEM | c::E2BIG => facts::limit_facts(pid),
        c::EAGAIN if call.class == Class::Fork => facts::limit_facts(pid),
        c::EPERM if locks => facts::limit_facts(pid),
        _ => path.filter(|path| path.starts_with(b"/")).map_or(json!({}), |path| facts::file_facts(pid, path)),
    };
    let Some(map) = facts.as_object_mut() else { return facts };
    if call.name.starts_with("inotify_") {
        map.insert("inotify".into(), facts::inotify_limits(pid).into());
    }
    let holder = match (errno, call.about) {
        (c::EADDRINUSE, _) => {
            address.and_then(|name| name.rsplit(':').next()?.parse().ok()).and_then(|port| holders::of_port(pid, port))
        }
        (c::ETXTBSY, _) => {
            path.and_then(|path| holders::of_program(&facts::in_root(pid, path), call.class != Class::Exec))
        }
        _ => None,
    };
    if let Some(holder) = holder {
        map.insert("holder".into(), holder);
    }
    facts
}
