//! The process's own figures, under the names that every Prometheus client library gives them.

use std::fmt::Write;

use procfs::WithCurrentSystemInfo;
use procfs::process::{LimitValue, Process};

/// All that the system tells; nothing where it tells nothing.
pub(super) fn render() -> String {
    let mut text = String::new();
    let about = "The build: always 1.";
    let version = env!("CARGO_PKG_VERSION");
    let _ = write!(
        text,
        "# HELP tandem_build_info {about}\n# TYPE tandem_build_info gauge\n\
         tandem_build_info{{version=\"{version}\"}} 1\n\n"
    );
    // What another process may not see of this one, it may see of itself.
    let Ok(process) = Process::myself() else {
        return text;
    };
    if let Ok(stat) = process.stat() {
        let ticks = procfs::ticks_per_second() as f64;
        let cpu = (stat.utime + stat.stime) as f64 / ticks;
        one(
            &mut text,
            ("process_cpu_seconds_total", "counter"),
            "CPU time used, of the system and its own, in seconds.",
            cpu,
        );
        let gauge = |name| (name, "gauge");
        one(
            &mut text,
            gauge("process_resident_memory_bytes"),
            "Memory that is there, in bytes.",
            stat.rss_bytes().get() as f64,
        );
        one(
            &mut text,
            gauge("process_virtual_memory_bytes"),
            "Memory that is mapped, in bytes.",
            stat.vsize as f64,
        );
        one(
            &mut text,
            gauge("process_threads"),
            "Threads.",
            stat.num_threads as f64,
        );
        if let Ok(boot) = procfs::boot_time_secs() {
            one(
                &mut text,
                gauge("process_start_time_seconds"),
                "When it started, in seconds since 1970.",
                boot as f64 + stat.starttime as f64 / ticks,
            );
        }
    }
    if let Ok(open) = process.fd_count() {
        one(
            &mut text,
            ("process_open_fds", "gauge"),
            "Open file descriptors.",
            open as f64,
        );
    }
    if let Ok(limits) = process.limits()
        && let LimitValue::Value(most) = limits.max_open_files.soft_limit
    {
        one(
            &mut text,
            ("process_max_fds", "gauge"),
            "File descriptors that may be open.",
            most as f64,
        );
    }
    text
}

fn one(text: &mut String, (name, kind): (&str, &str), about: &str, value: f64) {
    let _ = write!(
        text,
        "# HELP {name} {about}\n# TYPE {name} {kind}\n{name} {value}\n\n"
    );
}
