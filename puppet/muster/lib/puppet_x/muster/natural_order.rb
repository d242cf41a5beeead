# frozen_string_literal: true

module PuppetX
  module Muster
    # The order in which people count: web2 comes before web10.
    module NaturalOrder
      module_function

      # A key to sort by. Numbers come before words at the same place; the name itself decides between `web1` and `web01`.
      def key(name)
        parts = name.scan(/\d+|\D+/).map do |part|
          part.match?(/\A\d/) ? [0, part.to_i, ''] : [1, 0, part]
        end
        [parts, name]
      end
    end
  end
end
