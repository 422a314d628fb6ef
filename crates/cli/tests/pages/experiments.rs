//! The page of experiments, from the lab's list.

use baton_lab::experiment::{Experiment, PLANS, plan};
use baton_lab::papers::{ALL, exhibits};

/// The whole text of the page, as Markdown.
pub fn page() -> String {
    let plans = PLANS.map(|(name, _)| format!("`{name}`")).join(" or ");
    let mut page = format!(
        "# Experiments\n\n`baton bench run ID` runs an experiment as a plan says, {plans}, and compares it with the \
         papers' statements; without ids it runs all. `baton bench list` has this list. The command in the last column \
         has more options.\n\n| id | what it measures | repeats | needs | command |\n| --- | --- | --- | --- | --- |\n"
    );
    for experiment in &ALL {
        let Experiment { id, title, command, .. } = experiment;
        let (sources, needs) = (sources(experiment), needs(experiment));
        page.push_str(&format!("| `{id}` | {title} | {sources} | {needs} | `{command}` |\n"));
    }
    page.push_str("\n## What varies\n\nThe values are those of the plan `whole`.\n");
    let plan = plan("whole").unwrap();
    for Experiment { id, axes, .. } in &ALL {
        let extent = &plan[*id];
        page.push_str(&format!(
            "\n### `{id}`\n\nRounds: {}.\n\n| axis | what it is | values |\n| --- | --- | --- |\n",
            extent.rounds
        ));
        for axis in *axes {
            let values = extent.values::<toml::Value>(axis.name).unwrap();
            let values: Vec<String> = values.iter().map(word).collect();
            page.push_str(&format!("| `{}` | {} | {} |\n", axis.name, axis.about, values.join("; ")));
        }
    }
    page
}

fn sources(experiment: &Experiment) -> String {
    let link = |exhibit: &baton_lab::experiment::Exhibit| format!("[{exhibit}](../papers/{})", exhibit.paper.page);
    let links: Vec<String> = exhibits::of(experiment.id).map(link).collect();
    if links.is_empty() { "–".to_owned() } else { links.join(", ") }
}

fn needs(experiment: &Experiment) -> String {
    let need = |need: &baton_lab::experiment::Need| match need.without {
        Some(without) => format!("{} (otherwise {without})", need.what),
        None => need.what.to_owned(),
    };
    experiment.needs.iter().map(need).collect::<Vec<_>>().join(", ")
}

/// A value as a word: `20`, `kernel`, or `limit 20`.
fn word(value: &toml::Value) -> String {
    match value {
        toml::Value::String(word) => word.clone(),
        toml::Value::Table(table) => {
            table.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}
