-- threshold: critical_share = 0.5 (share of database time; more time goes there than to everything else)
-- threshold: critical_sessions = 1 (sessions waiting on average; together they lost the length of the window)
-- threshold: high_share = 0.2 (share of database time; without it the server can do about a fifth more work)
-- threshold: high_sessions = 0.5 (sessions waiting on average)
-- threshold: medium_share = 0.05 (share of database time; less is hard to distinguish from changes in the load)
-- threshold: medium_sessions = 0.1 (sessions waiting on average; on an idle server a large share means little)
-- threshold: confident_samples = 100 (a sampling error of 10 %)
-- threshold: some_samples = 20 (a sampling error of 22 %)
-- threshold: confident_seen = 30 (waiters or scans that show what is waited for; the error of a share is then below 20 %)
-- threshold: some_seen = 10 (waiters or scans; the error of a share is then below 32 %)
-- threshold: named_part = 0.5 (share of the waits whose target is known; with less, the larger part is inferred)

-- From seconds lost by the victims: share is of the cost base (database time), window_s the length of the capture.
create or replace macro severity_of(share, lost_s, window_s) as
  case when share >= getvariable('critical_share') and lost_s >= getvariable('critical_sessions') * window_s then 'critical'
       when share >= getvariable('high_share') and lost_s >= getvariable('high_sessions') * window_s then 'high'
       when share >= getvariable('medium_share') and lost_s >= getvariable('medium_sessions') * window_s then 'medium'
       else 'low' end;

-- From the number of samples; high only for samples of shared memory, which are evenly spaced.
create or replace macro confidence_of(tier, samples, high := null, medium := null) as
  case when tier = 'shm' and samples >= coalesce(high, getvariable('confident_samples')) then 'high'
       when samples >= coalesce(medium, getvariable('some_samples')) then 'medium' else 'low' end;

-- From the number of samples and of sightings of what was waited for, and how much of the waiting these name.
create or replace macro confidence_of_seen(samples, seen, named, waiting) as
  case when samples >= getvariable('confident_samples') and seen >= getvariable('confident_seen')
            and named >= getvariable('named_part') * waiting then 'high'
       when samples >= getvariable('some_samples') and seen >= getvariable('some_seen') then 'medium' else 'low' end;

-- The text of a statement without its comments, and whether one of the commands of its message begins with these words.
create or replace macro without_comments(query) as regexp_replace(query, '(?s)/\*.*?\*/|--[^\n]*(\n|$)', ' ', 'g');
create or replace macro begins_with(message, words) as regexp_matches(message, '(?i)(^|;)\s*' || replace(words, ' ', '\s+') || '\b');
-- The first table that a statement names, with its schema where it has one; without quotes.
create or replace macro first_table(query) as
  replace(regexp_extract(query, '(?i)\b(?:update|into|from)\s+(?:only\s+)?((?:"[^"]+"|[\w$]+)(?:\.(?:"[^"]+"|[\w$]+))?)', 1), '"', '');

-- Heavyweight locks, pins, other processes and timeouts: a statement waits for them seldom, but long.
create or replace macro is_long_wait(wait_class) as wait_class in ('Lock', 'BufferPin', 'IPC', 'Timeout');

-- A program in a sentence: its processes together, or the one it was.
create or replace macro program(comm, processes, pid) as
  coalesce(comm, '?') || case when processes = 1 and pid is not null then format(' (pid {})', pid)
                              else format(' ({} processes)', processes::bigint) end;

-- Functions in which the kernel sleeps on one of its own locks.
create or replace macro is_kernel_lock(function) as
  regexp_matches(function, '^(rwsem_|__?mutex_lock|mutex_lock|percpu_rwsem|__?down|down_)');
-- Functions in which the kernel waits on a CPU for one of its locks.
create or replace macro is_kernel_spin(function) as
  regexp_matches(function, '(_lock_slowpath|^osq_lock|^mutex_spin_on_owner|^rwsem_spin_on_owner|^rwsem_optimistic_spin)$');
-- The error of a system call, null when it did not fail: from -516 to -512 the kernel begins the call again, and what rt_sigreturn
-- (15; of 32 bit 119 and 173, counted from 4096) returns is a register of the program.
create or replace macro errno_of(nr, ret) as
  case when ret between -4095 and -1 and ret not between -516 and -512 and nr not in (15, 4215, 4269) then -ret end::integer;

-- System calls that force data to disk, and those that ask whether something has happened.
create or replace macro is_sync_call(call) as call in ('fsync', 'fdatasync', 'sync_file_range', 'syncfs', 'sync', 'msync');
create or replace macro is_poll_call(call) as
  call in ('poll', 'ppoll', 'select', 'pselect6', 'epoll_wait', 'epoll_pwait', 'epoll_pwait2');

-- An argument of a system call that can be compared between processes: null for what looks like an address of user space.
create or replace macro plain_argument(argument) as case when argument not between 4294967296 and 140737488355327 then argument end;

-- A function in a sentence: without the parameters that a C++ name has.
create or replace macro short_function(name) as regexp_replace(name, '\(.*', '()');

-- A function of a stack in a sentence, with its line where that is known.
create or replace macro placed_function(name, line) as
  short_function(name) || coalesce(format(' ({})', regexp_extract(line, '[^/]*$')), '');

-- System calls whose result is the number of bytes that were read or written.
create or replace macro is_read_call(call) as
  call in ('read', 'pread64', 'readv', 'preadv', 'preadv2', 'recvfrom', 'recvmsg');
create or replace macro is_write_call(call) as
  call in ('write', 'pwrite64', 'writev', 'pwritev', 'pwritev2', 'sendto', 'sendmsg');

-- Files that the kernel makes when they are read.
create or replace macro is_kernel_file(name) as starts_with(name, '/proc/') or starts_with(name, '/sys/');

-- System calls by which a program waits for a moment, and those that read the clock.
create or replace macro is_sleep_call(call) as call in ('nanosleep', 'clock_nanosleep', 'sched_yield');
create or replace macro is_clock_call(call) as call in ('clock_gettime', 'gettimeofday', 'time');

-- What a function of the kernel does for a thread that did not ask for it; null for all others.
create or replace macro kernel_work_of(function) as
  case when regexp_matches(function, '^(try_to_free_(mem_cgroup_)?pages|__perform_reclaim|__alloc_pages_direct_|try_to_compact_pages|compact_zone|shrink_(node|lruvec|folio_list)|node_reclaim)')
            then 'reclaim'
       when regexp_matches(function, '^(do_numa_page|do_huge_pmd_numa_page|migrate_misplaced_|numamigrate_|task_numa_work|change_prot_numa)')
            then 'NUMA'
       when regexp_matches(function, '^(__)?(do_huge_pmd_|split_huge_|collapse_huge_|hugetlb_|clear_huge_|copy_huge_|clear_gigantic_|folio_zero_user|copy_user_large_)')
            then 'huge pages'
       when regexp_matches(function, '^((asm_)?exc_page_fault|do_user_addr_fault|handle_mm_fault)$') then 'page faults' end;
-- Requests of block devices for the sake of order and safety: flushes, and writes through the cache (flags 9 and 10).
create or replace macro is_barrier(operation, flags) as operation = 'flush' or flags & 1536 <> 0;

-- An address of the server's own host, as packets, sessions and the server's own rules write it.
create or replace macro is_of_this_host(address) as
  address in ('', 'local', 'samehost', 'localhost', '::1', '::ffff:127.0.0.1') or address like '127.%';

-- An address that does not go over the internet: private, of the link, or of the host.
create or replace macro is_private(address) as
  is_of_this_host(address) or regexp_matches(lower(address),
    '^(::ffff:)?(10\.|192\.168\.|169\.254\.|172\.(1[6-9]|2[0-9]|3[01])\.)|^f[cd][0-9a-f]{2}:|^fe[89ab][0-9a-f]:');
