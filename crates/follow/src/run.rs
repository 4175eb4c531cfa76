//! Starts the command and its follower, passes signals on, and waits for the result.
//!
//! The follower is a process of its own. When the command has ended it reports, and goes on following what the command left running
//! (a server that an installer started): without a follower the calls that the filter stops would fail.

use crate::filter;
use crate::follower::{Follower, OPTIONS};
use crate::tracee;
use leadline_errors::{Error, Kind, Result};
use std::ffi::{CString, OsString};
use std::fs;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

/// Runs a command to its end and gives what was seen as JSON. Its input and outputs are ours, untouched.
///
/// linger: how long to watch processes that it leaves running. The calling process should have one thread.
///
/// # Errors
/// `rights` or `unsupported` where the command cannot be followed.
pub fn run(command: Vec<OsString>, linger: Duration) -> Result<String> {
    let words =
        command.into_iter().map(|word| CString::new(word.into_vec())).collect::<std::result::Result<Vec<_>, _>>();
    let words = words.map_err(|_| Error::new(Kind::Usage, "an argument of the command has a zero byte"))?;
    if words.is_empty() {
        return Err(Error::new(Kind::Usage, "no command"));
    }
    let before = block_signals();
    let (mut report, write) = pipe()?;
    // SAFETY: the child runs only code of this crate, and never returns to its caller.
    let follower = unsafe { libc::fork() };
    if follower < 0 {
        restore_signals(&before);
        return Err(failed("cannot start a process"));
    }
    if follower == 0 {
        drop(report);
        follower_main(&words, &before, write, linger);
        // SAFETY: leaves without running what the caller would at its exit.
        unsafe { libc::_exit(0) };
    }
    drop(write);
    let mut text = Vec::new();
    let read = wait_and_forward(&mut report, &mut text, &before);
    restore_signals(&before);
    reap(follower);
    read?;
    let Some((kind, text)) = text.split_first() else {
        return Err(Error::new(Kind::Gone, "the process that follows the command has ended"));
    };
    let text = String::from_utf8_lossy(text).into_owned();
    match kind {
        b'+' => Ok(text),
        _ => Err(Error::new(Kind::Rights, text).hint("in a container, allow ptrace: --cap-add=SYS_PTRACE")),
    }
}

/// The follower, if it has ended; one that still follows is left to init.
fn reap(follower: i32) {
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(follower, std::ptr::null_mut(), libc::WNOHANG) };
}

fn failed(what: &str) -> Error {
    Error::new(Kind::Unsupported, format!("{what}: {}", std::io::Error::last_os_error()))
}

fn pipe() -> Result<(File, File)> {
    let mut ends: [RawFd; 2] = [0; 2];
    // SAFETY: there is room for two descriptors, which are new and ours.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(failed("cannot open a pipe"));
        }
        Ok((File::from(OwnedFd::from_raw_fd(ends[0])), File::from(OwnedFd::from_raw_fd(ends[1]))))
    }
}

// -- the caller's side -------------------------------------------------------------------------------------------------

/// Signals that are passed on rather than ending leadline.
const PASSED: [i32; 7] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGCHLD];

fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are filled before they are used.
    unsafe {
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut set);
        for signal in PASSED {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
        before
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the set is one that pthread_sigmask gave.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

/// Reads the report: first the id of the command, then all else. Signals that someone sent to us go to the command; those of the
/// terminal reach it anyway.
fn wait_and_forward(report: &mut File, text: &mut Vec<u8>, before: &libc::sigset_t) -> Result<()> {
    // SAFETY: the set is filled before it is used.
    let signals = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in
            PASSED.into_iter().filter(|signal| *signal != libc::SIGCHLD && libc::sigismember(before, *signal) == 0)
        {
            libc::sigaddset(&mut set, signal);
        }
        libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if signals < 0 {
        return Err(failed("cannot watch for signals"));
    }
    // SAFETY: a new descriptor, ours.
    let mut signals = unsafe { File::from_raw_fd(signals) };
    let mut main = None;
    let mut piece = [0_u8; 64 * 1024];
    loop {
        let mut waits =
            [report.as_raw_fd(), signals.as_raw_fd()].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        // SAFETY: two entries.
        if unsafe { libc::poll(waits.as_mut_ptr(), 2, -1) } < 0 {
            continue;
        }
        if waits[0].revents != 0 {
            match report.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => text.extend_from_slice(&piece[..read]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::new(Kind::Gone, format!("the follower's report cannot be read: {e}"))),
            }
            if main.is_none() && text.len() >= 4 {
                main = Some(i32::from_ne_bytes([text[0], text[1], text[2], text[3]])).filter(|pid| *pid > 0);
            }
        }
        if waits[1].revents != 0 {
            let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
            if signals.read(&mut info).ok() == Some(info.len()) {
                let signal = i32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
                let code = i32::from_ne_bytes([info[8], info[9], info[10], info[11]]);
                if let Some(main) = main.filter(|_| code <= 0) {
                    // SAFETY: sends a signal to our own child's child.
                    unsafe { libc::kill(main, signal) };
                }
            }
        }
    }
    text.drain(..text.len().min(4));
    Ok(())
}

// -- the follower's side -----------------------------------------------------------------------------------------------

fn follower_main(words: &[CString], before: &libc::sigset_t, mut report: File, linger: Duration) {
    let program = filter::program();
    let outer = fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() != "0"))
    });
    let started = start(words, before, &program, &mut report);
    let main = match started {
        Ok(main) => main,
        Err(e) => {
            let _ = report.write_all(&[&[0, 0, 0, 0, b'-'], e.message.as_bytes()].concat());
            return;
        }
    };
    // SAFETY: closes descriptors of this process that nothing here uses: whoever reads the command's output shall not wait for us.
    unsafe {
        let kept = report.as_raw_fd().cast_unsigned();
        if kept > 0 {
            libc::close_range(0, kept - 1, 0);
        }
        libc::close_range(kept + 1, libc::c_uint::MAX, 0);
    }
    let mut follower = Follower::new(main, outer);
    follower.follow(Some((main, linger)));
    let seen = follower.state.tree.as_json(follower.state.filtered, follower.left());
    let _ = report.write_all(&[b"+", seen.to_string().as_bytes()].concat());
    drop(report);
    follower.follow(None);
}

/// The command, held until it is followed. Its id is told before it begins: a signal may be meant for it from then on.
fn start(words: &[CString], before: &libc::sigset_t, program: &[libc::sock_filter], report: &mut File) -> Result<i32> {
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let (wait, mut go) = pipe()?;
    // SAFETY: between fork and exec only system calls are made.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(failed("cannot start a process"));
    }
    if child == 0 {
        // SAFETY: as above; the words outlive exec, and all pointers end with a null.
        unsafe {
            let mut byte = 0_u8;
            libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1);
            for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
                libc::signal(signal, libc::SIG_DFL); // Python ignores them
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut());
            filter::set(program); // the follower sees whether calls stop
            libc::execvp(pointers[0], pointers.as_ptr());
            let missing = *libc::__errno_location() == libc::ENOENT;
            libc::_exit(if missing { 127 } else { 126 });
        }
    }
    if let Err(e) = tracee::seize(child, OPTIONS) {
        // SAFETY: our own child, which has not begun.
        unsafe { libc::kill(child, libc::SIGKILL) };
        return Err(Error::new(Kind::Rights, format!("the kernel does not let us follow the command: {e}")));
    }
    let _ = report.write_all(&child.to_ne_bytes());
    let _ = go.write_all(b"."); // a command that was killed meanwhile is seen to have ended
    Ok(child)
}
