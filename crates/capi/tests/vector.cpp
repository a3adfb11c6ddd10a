// A vector in C++ whose memory is a region's, sorted beyond the limit. Exits with 77 where there is no userfaultfd.
#include <outpage.h>
#include <outpage_client.h>

#include <algorithm>
#include <cstdio>
#include <cstdint>
#include <memory>
#include <numeric>

int main(int count, char **words) {
    if (count != 2)
        return 64;
    const char *const settings[] = {"swap", words[1], nullptr};
    outpage_pager *opened = nullptr;
    if (outpage_pager_new(8u << 20, settings, &opened) != 0) {
        std::fprintf(stderr, "%s\n", outpage_message());
        return 77;
    }
    std::unique_ptr<outpage_pager, decltype(&outpage_pager_free)> pager(opened, outpage_pager_free);
    const std::size_t values = 2u << 20;
    outpage_region *made = nullptr;
    if (outpage_region_new(pager.get(), values * sizeof(std::uint64_t), &made) != 0)
        return 1;
    std::unique_ptr<outpage_region, decltype(&outpage_region_free)> region(made, outpage_region_free);
    auto *first = static_cast<std::uint64_t *>(outpage_region_data(region.get()));
    std::iota(first, first + values, 0u);
    std::reverse(first, first + values);
    std::sort(first, first + values);
    for (std::size_t i = 0; i < values; i++)
        if (first[i] != i)
            return 1;
    return 0;
}
