# frozen_string_literal: true

module PuppetX
  module Muster
    # Converts a report to data that JSON can represent. It may contain command output in any encoding, and one invalid byte
    # must not lose the report.
    module PlainData
      module_function

      def from(value)
        case value
        when Hash then value.to_h { |key, item| [text(key), from(item)] }
        when Array then value.map { |item| from(item) }
        when Integer, true, false, nil then value
        when Float then value.finite? ? value : value.to_s
        else text(value)
        end
      end

      def text(value)
        string = value.to_s
        # Puppet labels text by the locale: with LANG=C, UTF-8 is labelled as ASCII.
        string = string.dup.force_encoding(Encoding::UTF_8) unless string.encoding == Encoding::UTF_8
        string.scrub
      end
    end
  end
end
