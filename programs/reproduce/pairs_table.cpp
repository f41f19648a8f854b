#include <reproduce/checks.h>
#include <reproduce/pairs_table.h>
#include <reproduce/pairwise_cover.h>

namespace fsdp {
namespace {

// A choice of one value for each factor of a table: the values as cells of a line, and the options
// of train that set these values.
struct Choice {
  std::vector<std::string> cells;
  // Options of train as text. `of_every_run`: options for all runs of a comparison. `of_first_run`:
  // further options for the first run of the comparison only.
  std::string of_every_run, of_first_run;
};

Choice choice_of(const TableOfRow& table, const std::vector<size_t>& values) {
  Choice choice{{}, table.options + " ", ""};
  for (size_t i = 0; i < values.size(); ++i) {
    const Factor& factor = table.factors[i];
    const FactorValue& value = factor.values[values[i]];
    choice.cells.push_back(value.text);
    (factor.in_every_run ? choice.of_every_run : choice.of_first_run) += value.options + " ";
  }
  return choice;
}

Line run_choice(const Choice& choice, const std::vector<std::string>& comparison,
                const Train& train) {
  const TrainResult& run =
      train(words(choice.of_every_run + choice.of_first_run + comparison.front()));
  bool ok = is_as_predicted(run);
  for (size_t i = 1; i < comparison.size(); ++i)
    ok = ok && train(words(choice.of_every_run + comparison[i])).hash() == run.hash();
  Line line{choice.cells, ok};
  line.cells.push_back(run.hash().substr(0, 8));
  return line;
}

}  // namespace

Table run_pairs(const TableOfRow& table, const Train& train) {
  Table made;
  made.title = table.title;
  std::vector<size_t> counts;
  for (const Factor& factor : table.factors) {
    made.header.push_back(factor.name);
    counts.push_back(factor.values.size());
  }
  made.header.emplace_back("sha256");
  for (const auto& comparison : table.comparisons) {
    for (const std::vector<size_t>& values : pairwise_cover(counts)) {
      const Choice choice = choice_of(table, values);
      made.add(choice.cells, [&] { return run_choice(choice, comparison, train); });
    }
  }
  made.notes.insert(made.notes.end(), table.notes.begin(), table.notes.end());
  return made;
}

}  // namespace fsdp
