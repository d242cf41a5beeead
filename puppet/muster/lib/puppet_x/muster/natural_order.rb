# frozen_string_literal: true

module PuppetX
  module Muster
    # Natural order: web2 comes before web10.
    module NaturalOrder
      module_function

      # Sort key. Numbers sort before text at the same position; the name itself decides between `web1` and `web01`.
      def key(name)
        parts = name.scan(/\d+|\D+/).map do |part|
          part.match?(/\A\d/) ? [0, part.to_i, ''] : [1, 0, part]
        end
        [parts, name]
      end
    end
  end
end
