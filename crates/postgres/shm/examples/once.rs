//! Attaches to a postmaster, prints what was checked and one pass. Usage: once PID [copy]

use leadline_shm::{attach, memory::Memory, sessions};

fn main() {
    let mut args = std::env::args().skip(1);
    let pid = args.next().and_then(|p| p.parse().ok()).unwrap_or_else(|| {
        eprintln!("usage: once POSTMASTER_PID [copy]");
        std::process::exit(2)
    });
    let mut server = match attach::attach(pid, args.next().as_deref() != Some("copy")) {
        Ok(server) => server,
        Err(e) => {
            eprintln!("error: {}\n  detail: {}\n  hint: {}", e.message, e.detail, e.hint);
            std::process::exit(2)
        }
    };
    println!("{} ({})", server.version_text, server.version_num);
    println!("{:?}\n{}", server.anchors, server.not_mapped_why);
    for check in &server.checks {
        println!("{:?} {}: {}", check.passed, check.name, check.detail);
    }
    let mut all = sessions::Sessions::new(&server.layout, &server.anchors, &server.process);
    let mut pass = sessions::Pass::default();
    server.memory.prepare(&all.ranges());
    all.pass(&server.memory, 0, 0, &mut pass);
    all.end_runs(&mut pass);
    for run in &pass.runs {
        let seen = pass.sessions.iter().find(|s| s.session_id == run.session_id);
        let (class, event) = server.wait_events.name(run.wait_event_info);
        let kind = seen.and_then(|s| server.layout.backend_type(s.identity.backend_type_code));
        println!("{run:?} {class}:{event} {kind:?} {seen:?}");
    }
    println!("torn {} retried {} next xid {}", pass.torn, pass.retried, pass.next_xid);
}
