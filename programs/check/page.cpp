#include <check/print.h>

#include <algorithm>
#include <cstdio>

namespace fsdp {
namespace {

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>The seven tasks</title><style>
:root { color-scheme: light dark; --page: #fbfaf7; --panel: #fff; --ink: #1f2430; --soft: #646a77;
  --line: #dedad0; --done: #23774f; --next: #2f689f; --bad: #b32d2d }
@media (prefers-color-scheme: dark) { :root { --page: #14161a; --panel: #1a1d22; --ink: #e8e5de;
  --soft: #9ba0ab; --line: #363b43; --done: #5cba8b; --next: #7bb0e6; --bad: #ff8a80 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 20px 16px; max-width: 60rem; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; font-variant-numeric: tabular-nums; overflow-wrap: anywhere }
h1, h2 { margin: 0; font-size: 1.3em } h2 { font-size: 1em } ol, ul { list-style: none; margin: 0; padding: 0 }
p { margin: 14px 0 20px; padding: 10px 14px; border-left: 4px solid var(--next); background: var(--panel) }
.task { position: relative; padding: 0 0 22px 46px }
.task::before { content: ""; position: absolute; left: 15px; top: 0; bottom: 0; width: 2px; background: var(--line) }
.task:last-child::before { bottom: auto; height: 20px }
.task > b { position: absolute; left: 0; width: 32px; line-height: 28px; text-align: center; border-radius: 16px;
  border: 2px dashed var(--line); background: var(--page); color: var(--soft) }
.task.ready > b, .task.begun > b { border: 2px solid var(--next); color: var(--ink) }
.task.complete > b { border: 2px solid var(--done); background: var(--done); color: var(--page) }
.row { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 8px }
.bar { height: 5px; margin: 5px 0; background: var(--line) } .bar i { display: block; height: 5px; background: var(--done) }
ul { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 16rem), 1fr)); gap: 6px; margin-top: 8px }
li li { padding: 6px 9px; border: 1px solid var(--line); border-radius: 6px; background: var(--panel) }
li li.extension { border-style: dashed } li li.next { border-color: var(--next); box-shadow: 0 0 0 1px var(--next) }
small { display: block; color: var(--soft); font-size: .87em } .complete small { color: var(--done) }
.failed small { color: var(--bad) }
</style>
)";

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text)
    safe += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return safe;
}

// Returns one row of the page as HTML: the title, the points at the right, and below them a bar
// that shows the share of the possible points.
std::string row(const std::string& title, const Tally& tally) {
  char text[128];
  std::snprintf(
      text, sizeof text,
      "<span>%.1f of %.0f</span></div>\n<div class=bar><i style='width: %.0f%%'></i></div>\n",
      tally.points, tally.possible, 100 * tally.points / std::max(tally.possible, 1.0));
  return "<div class=row>" + title + text;
}

std::string problem_item(const TaskResult& task, const Problem& problem, const Tally& tally,
                         bool next) {
  std::string kind = next ? "next" : "", state = reason(task, &problem);
  if (problem.extension) kind = "extension";
  const std::string remark = kind.empty() ? "" : kind + "; ";
  if (tally.complete()) {
    kind += " complete";
    state = "complete";
  } else if (tally.begun()) {
    if (tally.failed > 0) kind += " failed";
    state = std::to_string(tally.passed) + " of " + std::to_string(tally.tests()) + " tests passed";
  }
  return "<li class='" + kind + "'>" +
         row("<span>" + problem.number + ' ' + problem.name + "</span>", tally) + "<small>" +
         remark + escaped(state) + "</small></li>\n";
}

}  // namespace

std::string html_map(const Settings& settings, const CourseResult& course) {
  const auto [next, text] = next_step(settings, course.tasks);
  std::string page = kHead;
  page += row("<h1>The seven tasks and their points</h1>", course.sum) + "<p>" +
          (next ? text.substr(text.find("Next: ")) : "Every task is complete.") + "</p>\n<ol>\n";
  // Number of the last task before `task` that is not optional and not complete; 0: there is none.
  int incomplete = 0;
  for (const TaskResult& task : course.tasks) {
    const int solutions = settings.solutions_under(*task.task);
    const std::string number = std::to_string(task.task->number);
    std::string kind = "ready", state = "can begin", mark = number;
    if (task.tally().complete()) {
      kind = state = "complete";
      mark = "&#10003;";
    } else if (!task.unusable.empty()) {
      kind = "begun failed";
      state = task.unusable;
    } else if (task.tally().begun()) {
      kind = state = "begun";
    } else if (solutions >= 0 && incomplete > solutions) {
      kind = "waits";
      state = "begins after task " + std::to_string(incomplete);
    }
    if (task.points_withheld) state += "; no points while this test fails: " + task.task->sentinel;
    if (task.task->number > 1 && solutions >= 0)
      state += "; stands on " + base_text(task.task->number, solutions);
    if (!task.sum.complete() && !task.task->is_optional()) incomplete = task.task->number;
    page += "<li class='task " + kind + "'><b>" + mark + "</b>" +
            row("<h2>" + number + ' ' + task.task->name + "</h2>", task.tally()) + "<small>" +
            state + "</small><ul>\n";
    for (const auto& [problem, tally] : task.problems)
      page += problem_item(task, *problem, tally, problem == next);
    page += "</ul></li>\n";
  }
  return page + "</ol>\n" + row("<h2>Extensions</h2>", course.extensions) + "</html>\n";
}

}  // namespace fsdp
