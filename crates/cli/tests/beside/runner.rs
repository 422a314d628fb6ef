//! Selects and plays cells, several at once, and prints the results.

use crate::cover::covering;
use crate::factors::{Cell, Family, Life, Situation, Traffic};
use crate::outcome::Outcome;
use crate::play;
use baton_testkit::Netns;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

/// Plays the cells of a situation.
///
/// # Panics
/// If the outcome of any cell differs from the kernel's.
pub fn run(situation: Situation) {
    if let Some(why) = situation.lacks(&Netns::new("besidelacks")) {
        baton_testkit::skip!("{why}");
    }
    let plan = Plan::get();
    let cells: Vec<Cell> = plan.cells.iter().copied().filter(|cell| cell.situation == situation).collect();
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for cell in cells {
            let failed = &failed;
            let play = move || {
                let _place = plan.place();
                if !play_one(plan, cell) {
                    failed.lock().unwrap().push(cell.to_string());
                }
            };
            thread::Builder::new().name(cell.to_string()).spawn_scoped(scope, play).expect("a thread");
        }
    });
    let failed = failed.into_inner().unwrap();
    let one = failed.first().map_or("", String::as_str);
    let number = failed.len();
    assert!(
        failed.is_empty(),
        "{number} cells failed, see above; one alone: cargo xtask beside {one}\n{}",
        failed.join("\n")
    );
}

/// Plays a cell and prints its row.
fn play_one(plan: &Plan, cell: Cell) -> bool {
    let begun = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let kernel = plan.kernel(cell);
        let (outcome, moved) = play::with_baton(cell, &kernel);
        (outcome.differences(&kernel), moved)
    }));
    let seconds = begun.elapsed().as_secs_f64();
    let passed = match outcome {
        Ok((differences, moved)) if differences.is_empty() => {
            println!("ok      {cell}  {moved}, {seconds:.1} s");
            true
        }
        Ok((differences, moved)) => {
            println!("FAILED  {cell}  {moved}, {seconds:.1} s");
            differences.iter().for_each(|line| println!("        {line}"));
            false
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            println!("FAILED  {cell}  {seconds:.1} s: {}", text.unwrap_or_default());
            false
        }
    };
    if !passed {
        println!("        alone: cargo xtask beside {cell}");
    }
    plan.note(cell, passed);
    passed
}

/// The part of a cell that matters on the kernel alone: not the engine, and of the lives only the death
/// of the program and the bytes that make a connection return.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key(Situation, Traffic, Family, Option<Life>);

struct Plan {
    cells: Vec<Cell>,
    log: Option<PathBuf>,
    kernels: Mutex<HashMap<Key, Arc<OnceLock<Outcome>>>>,
    free: Mutex<usize>,
    freed: Condvar,
}

impl Plan {
    fn get() -> &'static Plan {
        static PLAN: OnceLock<Plan> = OnceLock::new();
        PLAN.get_or_init(|| {
            let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
            let all = Cell::all();
            let mut cells =
                if variable("BATON_BESIDE").is_some_and(|what| what == "all") { all } else { covering(&all) };
            let log = variable("BATON_BESIDE_LOG").map(PathBuf::from);
            if let Some(only) = variable("BATON_BESIDE_ONLY") {
                cells.retain(|cell| only.split(',').any(|part| is_named(cell, part)));
            } else {
                let done = log.as_ref().and_then(|log| fs::read_to_string(log).ok()).unwrap_or_default();
                let done: BTreeSet<&str> = done.lines().filter_map(|line| line.strip_prefix("ok ")).collect();
                cells.retain(|cell| !done.contains(cell.to_string().as_str()));
            }
            let at_once = variable("BATON_BESIDE_AT_ONCE").map_or(6, |number| number.parse().expect("a number"));
            Plan { cells, log, kernels: Mutex::default(), free: Mutex::new(at_once), freed: Condvar::new() }
        })
    }

    /// The kernel's outcome for this cell.
    fn kernel(&self, cell: Cell) -> Outcome {
        let life = Some(cell.life).filter(|life| matches!(life, Life::ProgramKilled | Life::HomeByBulk));
        let key = Key(cell.situation, cell.traffic, cell.family, life);
        let kept = self.kernels.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        kept.get_or_init(|| play::alone(cell)).clone()
    }

    /// Waits for a turn, which ends when the returned value is dropped.
    fn place(&self) -> Place<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Place(self)
    }

    fn note(&self, cell: Cell, passed: bool) {
        let Some(log) = &self.log else { return };
        let mut file = OpenOptions::new().create(true).append(true).open(log).expect("the log can be written");
        let word = if passed { "ok" } else { "failed" };
        file.write_all(format!("{word} {cell}\n").as_bytes()).expect("the log can be written");
    }
}

struct Place<'a>(&'a Plan);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// Returns true if each word of `part` is one of the cell's words.
fn is_named(cell: &Cell, part: &str) -> bool {
    let name = cell.to_string();
    part.split('/').all(|word| name.split('/').any(|of| of == word))
}
