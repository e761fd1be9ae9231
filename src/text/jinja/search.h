// Finding a string in another in linear time, paid by bytes.
// std::string_view::find compares the whole needle at every place, which a hostile template makes quadratic.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ggml/base/result.h"
#include "src/text/jinja/budget.h"

namespace nibble::jinja {

// The occurrences of a needle that do not overlap, from the left or from the right (Knuth-Morris-Pratt).
class Search {
  public:
    enum class From : uint8_t { left, right };

    // Pays for the whole search. `s` and `needle` must outlive it; an empty needle is never found.
    static Result<Search> start(Budget& budget, std::string_view s, std::string_view needle,
                                From from = From::left);
    size_t next();  // where the next occurrence begins; npos when there is none

  private:
    Search(std::string_view s, std::string_view needle, From from);
    char at(std::string_view s, size_t i) const { return s[from_ == From::left ? i : s.size() - 1 - i]; }

    std::string_view s_, needle_;
    From from_;
    std::vector<uint32_t> border_;  // of each prefix of the needle: the longest that is also its suffix
    size_t seen_ = 0, matched_ = 0;
};

}  // namespace nibble::jinja
